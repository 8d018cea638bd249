"""How a conditional chooses: both spellings become ways out, of which the first that holds is taken."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core.dag.condition_syntax import ConditionFailed
from core.dag.conditions import Condition, Read, parse_condition, shown
from core.dag.nodes import ConditionalNode
from core.dag.templates import Program, compile_value

MAX_SHOWN_TEXT = 1_000


@dataclass(frozen=True, slots=True)
class Way:
    """One way out; without a condition it is taken when no earlier one was."""

    condition: Condition | None
    targets: tuple[str, ...]
    text: str | None
    """What the output says about why it was taken."""
    answer: bool | None = None


@dataclass(frozen=True, slots=True)
class Chooser:
    """A compiled conditional; `field` is its `condition_field`, `path` where it stands."""

    path: str
    ways: tuple[Way, ...]
    field: Program | None = None

    def choose(self, read: Read, read_field: Callable[[Program], Any]) -> dict[str, Any]:
        """Return the output of the node: the nodes taken, the condition and the value that decided.

        Raises `ConditionFailed` when no way holds, and what the conditions raise.
        """
        field = None if self.field is None else read_field(self.field)
        for way in self.ways:
            if way.condition is None or way.condition.holds(read, field):
                value = way.answer if self.field is None else _plain(field)
                return {"taken": list(way.targets), "condition": way.text, "value": value}
        message = f"no branch holds and there is no default{self._asked(field)}"
        raise ConditionFailed(message, code="NO_BRANCH", field=f"{self.path}.branches")

    def _asked(self, field: Any) -> str:
        return "" if self.field is None else f"; condition_field is {shown(field)}"


def compile_conditional(node: ConditionalNode, path: str) -> Chooser:
    """Compile a conditional. Raises `ConditionFailed` and `TemplateFailed`."""
    if node.condition is not None:
        condition = parse_condition(node.condition, path=f"{path}.condition")
        held = Way(condition, node.on_true, condition.source, answer=True)
        return Chooser(path, (held, Way(None, node.on_false, condition.source, answer=False)))
    by_field = node.condition_field is not None
    ways = [
        Way(
            parse_condition(branch.condition, field=by_field, path=f"{path}.branches[{number}].condition"),
            branch.next,
            branch.condition,
        )
        for number, branch in enumerate(node.branches)
        if branch.condition is not None
    ]
    ways += [Way(None, branch.next, None) for branch in node.branches if branch.default]
    return Chooser(path, tuple(ways), compile_value(node.condition_field) if by_field else None)


def _plain(value: Any) -> Any:
    """Return a value that is small and plain, None for any other."""
    plain = value is None or isinstance(value, bool | int | float)
    return value if plain or (isinstance(value, str) and len(value) <= MAX_SHOWN_TEXT) else None
