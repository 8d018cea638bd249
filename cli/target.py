"""Which platform the command talks to, and with whose key."""

import os
from dataclasses import dataclass
from pathlib import Path

from cli.client import Client
from cli.errors import KEY_VARIABLE, Unreachable
from cli.stack.credentials import load_credentials
from cli.stack.layout import Urls
from cli.stack.stack import read_state

URL_VARIABLES = {
    "gateway": "GEODAG_GATEWAY_URL",
    "orchestrator": "GEODAG_ORCHESTRATOR_URL",
    "serving": "GEODAG_SERVING_URL",
}


@dataclass(frozen=True, slots=True)
class Target:
    """Addresses of one platform and where its local keys lie."""

    urls: Urls
    home: Path

    @classmethod
    def of(cls, home: Path) -> "Target":
        """Return the platform of a home; environment variables name another one.

        Raises Unreachable when neither says where it is.
        """
        named = {door: os.environ.get(variable) for door, variable in URL_VARIABLES.items()}
        recorded = (read_state(home) or {}).get("urls", {})
        urls = {door: named[door] or recorded.get(door) for door in URL_VARIABLES}
        if not urls["gateway"]:
            raise Unreachable(f"no stack was started in {home}; run `geodag up` or set {URL_VARIABLES['gateway']}")
        return cls(Urls(**{door: str(url or "") for door, url in urls.items()}), home)

    def key(self, subject: str) -> str:
        """Return the key to call with: the environment's, else the one the home has for a subject."""
        if from_environment := os.environ.get(KEY_VARIABLE):
            return from_environment
        credentials = load_credentials(self.home)
        if credentials is None or subject not in credentials.keys:
            raise Unreachable(f"no key for {subject!r} in {self.home}; set {KEY_VARIABLE}")
        return credentials.keys[subject]

    def client(self, subject: str) -> Client:
        """Return a client that calls as a subject of the local key file."""
        return Client(self.key(subject))
