"""Handlers that do nothing useful, for trying the platform out and for testing it (specification §9.3)."""

import random
import time

from core.errors import GeodagError, TransientError
from core.example_params import (
    ChunkOutput,
    ChunkParams,
    EchoOutput,
    FailParams,
    FlakyParams,
    HelloOutput,
    HelloParams,
    MakeValuesOutput,
    MakeValuesParams,
    MultiPhaseOutput,
    MultiPhaseParams,
    SizeCheckOutput,
    SizeCheckParams,
    SleepOutput,
    SleepParams,
)
from core.handler_models import AnyParams
from handlers.context import InlineContext, Outcome, ProcessContext

_SLICE_SECONDS = 0.05
_BYTES_PER_MB = 1_000_000


class FailedOnPurpose(GeodagError):
    """What `fail` raises."""


class FailedForNow(TransientError):
    """What `fail` raises when it is asked for an error that may pass."""


async def echo(ctx: InlineContext, params: AnyParams) -> Outcome:
    """Return the params."""
    return Outcome(EchoOutput(echoed_params=ctx.params))


async def hello_world(ctx: InlineContext, params: HelloParams) -> Outcome:
    """Greet."""
    return Outcome(HelloOutput(message=f"Hello, {params.name}!"))


async def sleep(ctx: InlineContext, params: SleepParams) -> Outcome:
    """Wait, and stop waiting when the task is cancelled."""
    await ctx.sleep(params.seconds)
    return Outcome(SleepOutput(slept_seconds=params.seconds))


async def fail(ctx: InlineContext, params: FailParams) -> Outcome:
    """Fail with the code and class that the params ask for."""
    kind = FailedForNow if params.transient else FailedOnPurpose
    raise kind(params.message, code=params.code)


async def flaky_echo(ctx: InlineContext, params: FlakyParams) -> Outcome:
    """Return the params, or fail transiently with the probability `failure_rate`."""
    if random.random() < params.failure_rate:  # noqa: S311 - chance, not secrecy
        raise FailedForNow(f"failed by chance (failure_rate {params.failure_rate})", code="FLAKY")
    return Outcome(EchoOutput(echoed_params=ctx.params))


async def size_check(ctx: InlineContext, params: SizeCheckParams) -> Outcome:
    """Say whether a size lies above a threshold."""
    return Outcome(
        SizeCheckOutput(
            size_bytes=params.size_bytes,
            size_mb=params.size_bytes / _BYTES_PER_MB,
            is_large=params.size_bytes > params.threshold_bytes,
        )
    )


def multi_phase(ctx: ProcessContext, params: MultiPhaseParams) -> Outcome:
    """Run phases one after the other with a checkpoint after each; go on where the last attempt stopped.

    Each finished phase leaves a line in the journal, before its checkpoint.
    """
    saved = ctx.checkpoint.load()
    resumed_from = int(saved.state["done"]) if saved else 0
    for phase in range(resumed_from, params.phases):
        _pause(ctx, params.seconds_per_phase)
        ctx.journal(f"{ctx.task.task_id} phase {phase}")
        ctx.checkpoint.save(f"phase_{phase}", {"done": phase + 1})
        ctx.progress(phase + 1, params.phases, f"phase {phase + 1}")
    return Outcome(MultiPhaseOutput(phases_run=list(range(resumed_from, params.phases)), resumed_from=resumed_from))


def chunk_processor(ctx: ProcessContext, params: ChunkParams) -> Outcome:
    """Hand every item back, one by one."""
    results = []
    for index, item in enumerate(params.items, start=1):
        _pause(ctx, params.seconds_per_item)
        results.append(item)
        ctx.progress(index, len(params.items))
    return Outcome(ChunkOutput(processed=len(results), results=results))


def make_values(ctx: ProcessContext, params: MakeValuesParams) -> Outcome:
    """Return as much as it is asked for, all of it different: an output that has to travel by reference."""
    values = [f"{number:039d}".ljust(params.bytes_each, "x") for number in range(params.count)]
    return Outcome(MakeValuesOutput(count=len(values), values=values))


def _pause(ctx: ProcessContext, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        ctx.raise_if_cancelled()
        time.sleep(min(left, _SLICE_SECONDS))
    ctx.raise_if_cancelled()
