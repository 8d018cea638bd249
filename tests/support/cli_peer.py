"""A platform that answers the command line over HTTP with what a test says."""

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cli.target import KEY_VARIABLE, URL_VARIABLES


class CliPeer(ABC):
    """Every address of the platform in one; tests say what it answers."""

    def __init__(self) -> None:
        peer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer = peer.reply(self.command, self.path, body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    @abstractmethod
    def reply(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Return status and JSON of an answer."""

    @contextmanager
    def reached(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Let commands find it by their environment while the block runs."""
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        for variable in URL_VARIABLES.values():
            monkeypatch.setenv(variable, self.url)
        monkeypatch.setenv(KEY_VARIABLE, "key")
        try:
            yield
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()
