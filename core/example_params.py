"""Params and outputs of the handlers that do nothing useful, for trying the platform out and for testing it."""

from typing import Any

from pydantic import Field

from core.handler_models import AnyParams, Output, Params


class SleepParams(Params):
    """How long it waits."""

    seconds: float = Field(ge=0, le=86400)


class HelloParams(Params):
    """Who is greeted."""

    name: str = "World"


class HelloOutput(Output):
    """The greeting."""

    message: str


class EchoOutput(Output):
    """What it was given."""

    echoed_params: dict[str, Any]


class SleepOutput(Output):
    """How long it waited."""

    slept_seconds: float


class FailParams(Params):
    """With what it fails."""

    code: str = "INTERNAL"
    message: str = "failed on purpose"
    transient: bool = False


class FlakyParams(AnyParams):
    """How often it fails; whatever else it is given, it returns."""

    failure_rate: float = Field(default=0.2, ge=0, le=1)


class MultiPhaseParams(Params):
    """How much it does."""

    phases: int = Field(default=3, ge=1, le=1000)
    seconds_per_phase: float = Field(default=0.1, ge=0)


class MultiPhaseOutput(Output):
    """What this attempt did."""

    phases_run: list[int]
    resumed_from: int


class SizeCheckParams(Params):
    """What is compared."""

    size_bytes: int = Field(ge=0)
    threshold_bytes: int = Field(default=100_000_000, ge=0)


class SizeCheckOutput(Output):
    """What the comparison says."""

    size_bytes: int
    size_mb: float
    is_large: bool


class ChunkParams(Params):
    """What it works on."""

    items: list[Any]
    seconds_per_item: float = Field(default=0.0, ge=0)


class ChunkOutput(Output):
    """What it made of it."""

    processed: int
    results: list[Any]


class MakeValuesParams(Params):
    """How much it makes."""

    count: int = Field(default=1000, ge=0, le=1_000_000)
    bytes_each: int = Field(default=200, ge=40, le=1_000_000)


class MakeValuesOutput(Output):
    """What it made."""

    count: int
    values: list[str]
