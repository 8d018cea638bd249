"""Work that an evaluation wants done beside it, because it reads or writes more than one evaluation may hold.

`advance` answers a chore as long as it is not done; whoever evaluated does it. It is lost with its process and asked
for again by the next evaluation, so doing one twice must make no difference.
"""

from dataclasses import dataclass

from core.dag.nodes import Aggregation
from core.models.fan_out import FanOut
from core.payloads import PayloadRef


@dataclass(frozen=True, slots=True)
class Unpacking:
    """Store the items of a large source, which lie as lines of 500 in a blob, as rows; done when all are stored."""

    job_id: str
    node_id: str
    run_no: int
    ref: PayloadRef

    @property
    def key(self) -> str:
        """The name of the chore."""
        return f"unpack:{self.job_id}:{self.run_no}:{self.node_id}"


@dataclass(frozen=True, slots=True)
class Gathering:
    """Aggregate the outputs of all items of a fan-out; the answer is a `Rendered` under the key."""

    job_id: str
    node_id: str
    run_no: int
    aggregation: Aggregation
    fan_out: FanOut

    @property
    def key(self) -> str:
        """The name of the chore and of its answer."""
        return f"gather:{self.job_id}:{self.run_no}:{self.node_id}"


Chore = Unpacking | Gathering
