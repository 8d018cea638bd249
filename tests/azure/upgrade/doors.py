"""Several gateways behind one address, so that one may be replaced while the other answers."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from cli.stack.layout import REPOSITORY
from cli.stack.ports import HOST, choose_ports
from cli.stack.processes import Part, PartSpec, end_parts
from cli.stack.stack import Stack, answers, listens
from tests.support.waiting import wait_until

GRACE_SECONDS = 5.0
"""Who has not gone so long after he was asked is killed."""


class TwoDoors:
    """The gateway of a stack behind a balancer, with room for a second one beside it."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._ports = choose_ports(("front", "beside"), {})
        self.url = f"http://{HOST}:{self._ports['front']}"
        upstreams = (stack.plan.ports["gateway"], self._ports["beside"])
        argv = [sys.executable, "-m", "cli.stack.balancer", "--listen", f"{HOST}:{self._ports['front']}"]
        argv += [word for port in upstreams for word in ("--upstream", f"{HOST}:{port}")]
        home, environment = stack.home, stack.plan.spec("balancer").environment
        spec = PartSpec("front", argv, environment, home.log("front"), home.record("front"), REPOSITORY)
        self._front = Part.start(spec)
        wait_until(lambda: listens(self._ports["front"]), "the balancer listens", 30)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Let a second gateway, of the build that the first now belongs to, answer too."""
        spec, port = self._stack.plan.spec("gateway"), self._ports["beside"]
        environment = {**spec.environment, "GATEWAY_PORT": str(port)}
        log, record = self._stack.home.log("beside"), self._stack.home.record("beside")
        second = Part.start(replace(spec, name="beside", environment=environment, log_file=log, record_file=record))
        try:
            wait_until(lambda: answers(f"http://{HOST}:{port}/api/readyz"), "the second gateway ready", 60)
            yield
        finally:
            end_parts([second], GRACE_SECONDS)

    def close(self) -> None:
        """End the balancer."""
        end_parts([self._front], GRACE_SECONDS)
