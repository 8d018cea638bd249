"""What callers do: everything that changes a job, as its own transactions."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from core.errors import CallerError
from core.wire import Release
from orchestrator.heartbeat import Pulse
from orchestrator.loop import Loop
from services.payload_upkeep import PayloadUpkeep
from services.recover import OutageGuard, RecoverService
from services.slots import SlotService
from tests.support.engine import Engine, beats_of
from tests.support.gaps.scenes import Scene, failed, good, serve, some_of

Act = Callable[[Scene, Engine], Awaitable[Any]]
FIRST: Final = "the first"
LONG = 1e12
PATIENT = 1e8


def loop_of(engine: Engine, owner_id: str) -> Loop:
    """Return the loop of an instance that has always been there; nobody's transaction is too long for it."""
    guard = OutageGuard(-LONG, LONG, 0.0)
    guard.beat(time.monotonic())
    recover = RecoverService(engine.pool, owner_id, 15.0, silent_seconds=PATIENT)
    pulse = Pulse(time.monotonic())
    return Loop(
        engine.pool,
        engine.advance_service,
        recover,
        guard,
        pulse,
        owner_id,
        15.0,
        hears=lambda: True,
        on_ended=lambda _: None,
    )


async def report(scene: Scene, engine: Engine, *which: int) -> None:
    """Report the success of tasks that are held."""
    results = [good(scene.held[index]) for index in which if -len(scene.held) <= index < len(scene.held)]
    scene.note(await scene.worker(engine).report(*results))


async def first(scene: Scene, engine: Engine) -> None:
    """Report the first task."""
    await report(scene, engine, 0)


async def last(scene: Scene, engine: Engine) -> None:
    """Report the last task."""
    await report(scene, engine, -1)


async def every(scene: Scene, engine: Engine) -> None:
    """Report all tasks in one call."""
    await report(scene, engine, *range(len(scene.held)))


async def fail(scene: Scene, engine: Engine) -> None:
    """Report that the first task failed."""
    scene.note(await scene.worker(engine).report(*map(failed, scene.held[:1])))


async def release(scene: Scene, engine: Engine) -> None:
    """Give the last task back, of a batch with its first item done."""
    given = [Release(task_id=one.task_id, token=one.token, outcomes=some_of(one)) for one in scene.held[-1:]]
    scene.note(await scene.worker(engine).report(*given))


async def exchange(scene: Scene, engine: Engine) -> None:
    """Report the last task and take others."""
    answers, grants = await scene.worker(engine).exchange(*map(good, scene.held[-1:]), slots=3)
    scene.note(answers)
    for grant in grants:
        scene.take(grant.message)


async def wish(scene: Scene, engine: Engine) -> None:
    """Take tasks."""
    _, grants = await scene.worker(engine).exchange(slots=3)
    for grant in grants:
        scene.take(grant.message)


async def claim(scene: Scene, engine: Engine) -> None:
    """Claim what waits in the queue."""
    await scene.receive(engine)


async def beat(scene: Scene, engine: Engine) -> None:
    """Renew all leases."""
    await scene.worker(engine).beat(*beats_of(scene.held))


async def tick(scene: Scene, engine: Engine) -> None:
    """Let the loop do what is due."""
    await loop_of(engine, "owner-1").step()


async def values(scene: Scene, engine: Engine) -> None:
    """Look at the first job, and make what it asks for."""
    await engine.advance(scene.jobs[0])
    await serve(engine)


async def upkeep(scene: Scene, engine: Engine) -> None:
    """Remove stored values that belong to no job."""
    await PayloadUpkeep(engine.pool, engine.store).remove_orphans()


def ordered(kind: str, **args: Any) -> Act:
    """Return an order about the first job; FIRST stands for the first node that does something."""

    async def order(scene: Scene, engine: Engine) -> None:
        named = {name: scene.first_node if value == FIRST else value for name, value in args.items()}
        try:
            await engine.order(scene.jobs[0], kind, **named)
        except CallerError:
            return

    return order


async def submit(scene: Scene, engine: Engine) -> None:
    """Create one more job of the kind."""
    await scene.create(engine)


async def take_over(scene: Scene, engine: Engine) -> None:
    """Let another instance take over the jobs of one that has stopped."""
    await RecoverService(engine.pool, "owner-2", 15.0, silent_seconds=PATIENT).claim_jobs(may_reclaim=True)


async def drain(scene: Scene, engine: Engine) -> None:
    """Give up all jobs."""
    await RecoverService(engine.pool, "owner-1", 15.0, silent_seconds=PATIENT).release_jobs()


async def sweep(scene: Scene, engine: Engine) -> None:
    """Free slots that nobody holds."""
    await SlotService(engine.pool).sweep()


async def widen(scene: Scene, engine: Engine) -> None:
    """Set a limit by hand."""
    await SlotService(engine.pool).set_limit("global:desk", 3, "op")


async def switch_on(scene: Scene, engine: Engine) -> None:
    """Pause everything."""
    await engine.pause("all")


async def switch_off(scene: Scene, engine: Engine) -> None:
    """Let everything go on."""
    await engine.pause("all", on=False)


async def minute(scene: Scene, engine: Engine) -> None:
    """Let backoffs and leases end."""
    await scene.forward(61)


async def hour(scene: Scene, engine: Engine) -> None:
    """Let everything be due that waits for a time."""
    await scene.forward(3601)


ACTS: Final[Mapping[str, Act]] = {
    "first": first,
    "last": last,
    "every": every,
    "fail": fail,
    "release": release,
    "exchange": exchange,
    "wish": wish,
    "claim": claim,
    "beat": beat,
    "tick": tick,
    "cancel": ordered("cancel"),
    "pause": ordered("pause"),
    "resume": ordered("resume"),
    "priority": ordered("priority", priority="interactive"),
    "window": ordered("window", node_id="many", max_concurrency=4),
    "retry": ordered("retry"),
    "rerun": ordered("rerun"),
    "rerun_node": ordered("rerun", node_id=FIRST),
    "skip": ordered("skip", node_id=FIRST),
    "values": values,
    "upkeep": upkeep,
    "submit": submit,
    "take_over": take_over,
    "drain": drain,
    "sweep": sweep,
    "widen": widen,
    "switch_on": switch_on,
    "switch_off": switch_off,
    "minute": minute,
    "hour": hour,
}
OF_TIME: Final = frozenset({"minute", "hour"})
"""No transactions of anybody's: they only fall into gaps of others."""
OF_SLOTS: Final = frozenset({"sweep", "widen"})
OF_FAN_OUTS: Final = frozenset({"window"})
OF_VALUES: Final = frozenset({"values", "upkeep"})


def acts_on(kind: str, *, stepped: bool) -> Sequence[str]:
    """Return what makes sense for jobs of a kind."""
    left_out: set[str] = set(OF_TIME) if stepped else set()
    if kind not in {"slot", "fanslot"}:
        left_out |= OF_SLOTS
    if kind in {"task", "slot", "sub"}:
        left_out |= OF_FAN_OUTS
    if kind != "large":
        left_out |= OF_VALUES
    return [name for name in ACTS if name not in left_out]
