"""What an evaluation wants of slots. `core.dag.slots` decides it, `repositories.slots` grants it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """A holder that wants a slot of `key`; it is asked for once and granted in order."""

    key: str
    limit: int
    holder: str
    node_id: str | None
    priority: int


@dataclass(frozen=True, slots=True)
class SlotChanges:
    """What to write about slots."""

    requests: tuple[SlotRequest, ...] = ()
    freed: tuple[str, ...] = ()
    """Holders that hold and wait for nothing any more."""
    noticed: tuple[str, ...] = ()
    """Holders whose grant was acted on."""
    dropped: bool = False
    """The job has ended: whatever still waits for a slot in its name is taken out of the line."""


NO_CHANGES = SlotChanges()


@dataclass(slots=True)
class Wishes:
    """What is wanted so far."""

    requests: dict[str, SlotRequest] = field(default_factory=dict)
    """By holder."""
    job_key: str | None = None
    job_asks: bool = False
    """Whether a node could go on if the job had its slot."""
    changes: SlotChanges = NO_CHANGES
