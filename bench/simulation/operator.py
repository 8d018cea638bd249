"""Whoever gives orders: decides gates as planned, pauses and resumes, and cancels jobs whose end is nobody's plan.

While things go wrong it also retries jobs and runs them again, whether they have ended or not.
"""

from collections.abc import Mapping
from typing import Any

from bench.simulation.database import SimulatedDatabase
from bench.simulation.faults import Faults
from bench.simulation.instance import NoAnswer, Orchestrator, call
from bench.simulation.workload import Workload
from bench.simulation.world import Process, World
from core.errors import CallerError
from core.statuses import JOB_FINAL
from services.commands import Order
from services.meant_jobs import UNSUCCESSFUL

GATES = """
SELECT n.job_id, n.node_id, j.workflow_id FROM dagapp.dag_node_states AS n JOIN dagapp.dag_jobs AS j USING (job_id)
WHERE n.status = 'WAITING' AND n.waiting_for ->> 'kind' = 'gate' AND j.status = 'RUNNING' ORDER BY 1, 2
"""
JOBS = """
SELECT job_id, workflow_id, paused_at IS NOT NULL AS paused FROM dagapp.dag_jobs
WHERE status IN ('PENDING', 'RUNNING') AND parent_task_id IS NULL ORDER BY 1
"""

ALL_JOBS = """
SELECT job_id, workflow_id, run_no, status FROM dagapp.dag_jobs WHERE parent_task_id IS NULL ORDER BY 1
"""
BEGUN = """
SELECT node_id FROM dagapp.dag_node_states
WHERE job_id = %s AND parent_node_id IS NULL AND status <> 'PENDING' ORDER BY 1
"""
ONLY_RUN = "only run "
"""Begins the reason of a rerun that names the run which it means."""


class Operator:
    """A human with a client; an order without an answer is given again."""

    def __init__(
        self, world: World, faults: Faults, database: SimulatedDatabase, workload: Workload, anew: float
    ) -> None:
        self.process = Process("operator")
        self._world = world
        self._faults = faults
        self._database = database
        self._workload = workload
        self._anew = anew
        """Chance that an order is one to start a job anew."""

    async def work(self, orchestrators: Any) -> None:
        """Give orders for ever; when nothing goes wrong any more, only those that let jobs end."""
        while True:
            await self._world.pause(self.process, 1 + self._world.chance.random() * 9)
            job_id, order = await self._next_order()
            if order is None:
                continue

            async def obey(one: Orchestrator, job_id: str = job_id, order: Order = order) -> str:
                try:
                    return (await one.commands.order(job_id, order)).state
                except CallerError as error:
                    return error.detail.code

            try:
                target = self._world.chance.choice(orchestrators())
                outcome = await call(self._world, self._faults, self.process, target, obey)
                self._faults.note(f"order {order.kind} {outcome}")
            except NoAnswer:
                self._faults.note("order unanswered")

    async def _next_order(self) -> tuple[str, Order | None]:
        if self._anew and not self._faults.is_calm and self._world.chance.random() < self._anew:
            return await self._start_anew()
        gates, jobs = await self._database.rows(GATES), await self._database.rows(JOBS)
        chance = self._world.chance
        if gates and chance.random() < 0.7:
            gate = chance.choice(gates)
            good = self._workload.plans[gate["workflow_id"]][gate["node_id"]]
            args = {"node_id": gate["node_id"], "decision": "approved" if good else "rejected"}
            return gate["job_id"], _order("gate", args)
        if not jobs:
            return "", None
        job = chance.choice(jobs)
        if job["paused"]:
            return job["job_id"], _order("resume")
        if self._faults.is_calm:
            return "", None
        if chance.random() < 0.2 and job["workflow_id"] not in self._workload.certain:
            return job["job_id"], _order("cancel")
        return job["job_id"], _order("pause") if chance.random() < 0.5 else _order("priority", {"priority": 8})

    async def _start_anew(self) -> tuple[str, Order | None]:
        """Return a retry, or a rerun from the start or from any node; some mean one run of the job only."""
        jobs, chance = await self._database.rows(ALL_JOBS), self._world.chance
        if not jobs:
            return "", None
        ended = [job for job in jobs if job["status"] in JOB_FINAL]
        job = chance.choice(ended if ended and chance.random() < 0.5 else jobs)
        if chance.random() < (0.7 if job["status"] in UNSUCCESSFUL else 0.3):
            return job["job_id"], _order("retry")
        args: dict[str, Any] = {}
        if chance.random() < 0.8:
            begun = [row["node_id"] for row in await self._database.rows(BEGUN, job["job_id"])]
            anywhere = list(self._workload.definitions[job["workflow_id"]]["nodes"])
            args["node_id"] = chance.choice(begun if begun and chance.random() < 0.8 else anywhere)
        if chance.random() < 0.3:
            return job["job_id"], _order("rerun", {**args, "run_no": job["run_no"]}, f"{ONLY_RUN}{job['run_no']}")
        return job["job_id"], _order("rerun", args)


def _order(kind: str, args: Mapping[str, Any] | None = None, reason: str = "simulated") -> Order:
    return Order(kind, "op", reason, args or {})
