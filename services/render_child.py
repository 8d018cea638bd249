"""The process that makes one value from large ones: `python -I -m services.render_child`, order in, answer out.

It reads local files, verifies and parses them, evaluates, writes what is large in the result into a folder, and ends;
so whatever memory that takes is given back.
"""

import resource
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from core.dag.rendering import ANSWER, Rendered, Rendering, perform
from core.errors import ErrorDetail
from core.payloads import PayloadRef, decode, missing, ref_to, value_prefix

MEMORY_BYTES = 4 << 30


class Order(BaseModel):
    """What to make, where the files are, and where to leave what is large."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rendering: Rendering
    files: tuple[str, ...] = Field(description="Local files of `rendering.large`, in its order.")
    folder: str = Field(description="Large parts of the result become files in it, named like their blobs.")


def carry_out(order: Order) -> Rendered:
    """Make the value."""
    files = {one.ref.blob: Path(file) for one, file in zip(order.rendering.large, order.files, strict=True)}
    folder, prefix = Path(order.folder), value_prefix(order.rendering.job_id)

    def load(ref: PayloadRef) -> object:
        try:
            return decode(ref, files[ref.blob].read_bytes())
        except FileNotFoundError as error:
            raise missing(ref) from error

    def keep(data: bytes) -> PayloadRef:
        ref = ref_to(prefix, data)
        (folder / Path(ref.blob).name).write_bytes(data)
        return ref

    try:
        return perform(order.rendering, load, keep)
    except MemoryError:
        message = f"{order.rendering.path} takes more memory than a value may"
        return Rendered(error=ErrorDetail(code="VALUE_TOO_LARGE", message=message))


def main() -> None:
    """Carry out the order on standard input."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    order = Order.model_validate_json(sys.stdin.buffer.read())
    sys.stdout.buffer.write(ANSWER.dump_json(carry_out(order)))


if __name__ == "__main__":
    main()
