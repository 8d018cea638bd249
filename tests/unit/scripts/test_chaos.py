"""The load of `bench.chaos` outlives whatever happens to an answer: orchestrators are killed while they speak."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from bench.chaos import Chaos
from cli.stack.stack import Stack

ANSWER = b'{"job_id": "a"}'


class Breaking(BaseHTTPRequestHandler):
    """Announces an answer each time, and gives all of it only at the end."""

    said: ClassVar = [b"", ANSWER[:5], b"no JSON at all!", ANSWER]

    def do_POST(self) -> None:
        """Answer."""
        self.send_response(201)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(self.said.pop(0))

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """Yield where it listens."""
    with HTTPServer(("127.0.0.1", 0), Breaking) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_submit_is_sent_again_until_its_answer_is_whole(server: str, tmp_path: Path) -> None:
    keys = {"operator": "x", "gateway": "y"}
    stack = SimpleNamespace(credentials=SimpleNamespace(keys=keys), urls=SimpleNamespace(orchestrator=server))
    chaos = Chaos(cast(Stack, stack), tmp_path / "journal", 1, 1.0)
    chaos._submit(0)
    assert (chaos._answered, Breaking.said) == (["a"], [])
