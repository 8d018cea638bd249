"""Whoever gives orders: decides gates as planned, pauses and resumes, and cancels jobs whose end is nobody's plan."""

from collections.abc import Mapping
from typing import Any

from bench.simulation.database import SimulatedDatabase
from bench.simulation.faults import Faults
from bench.simulation.instance import NoAnswer, Orchestrator, call
from bench.simulation.workload import Workload
from bench.simulation.world import Process, World
from core.errors import CallerError
from services.commands import Order

GATES = """
SELECT n.job_id, n.node_id, j.workflow_id FROM dagapp.dag_node_states AS n JOIN dagapp.dag_jobs AS j USING (job_id)
WHERE n.status = 'WAITING' AND n.waiting_for ->> 'kind' = 'gate' AND j.status = 'RUNNING' ORDER BY 1, 2
"""
JOBS = """
SELECT job_id, workflow_id, paused_at IS NOT NULL AS paused FROM dagapp.dag_jobs
WHERE status IN ('PENDING', 'RUNNING') AND parent_task_id IS NULL ORDER BY 1
"""


class Operator:
    """A human with a client; an order without an answer is given again."""

    def __init__(self, world: World, faults: Faults, database: SimulatedDatabase, workload: Workload) -> None:
        self.process = Process("operator")
        self._world = world
        self._faults = faults
        self._database = database
        self._workload = workload

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


def _order(kind: str, args: Mapping[str, Any] | None = None) -> Order:
    return Order(kind, "op", "simulated", args or {})
