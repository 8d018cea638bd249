"""Checks, from outside, what the demo claims of an asset; prints each check and exits 1 at the first that fails."""

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from math import asinh, floor, pi, radians, tan
from pathlib import Path
from typing import Any

import psycopg

from cli.stack.cluster import Cluster
from cli.stack.credentials import load_credentials
from cli.stack.stack import read_state
from core.identity import CALLER_HEADER

PNG = b"\x89PNG\r\n\x1a\n"
TILE_ZOOM = 10
TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of one anonymous GET."""

    status: int
    body: bytes


def fetch(url: str, key: str | None = None) -> Answer:
    """Return what the holder of a key gets, or somebody without any."""
    request = urllib.request.Request(url, headers={} if key is None else {CALLER_HEADER: key})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            return Answer(answer.status, answer.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read())


def tile_of(lon: float, lat: float, zoom: int) -> tuple[int, int]:
    """Return x and y of the Web Mercator tile that holds a point."""
    n = 2**zoom
    return floor((lon + 180) / 360 * n), floor((1 - asinh(tan(radians(lat))) / pi) / 2 * n)


class Checks:
    """Doors of one asset, as the public or the holder of a key sees them."""

    def __init__(self, home: Path, asset: str, subject: str | None = None) -> None:
        state = read_state(home) or {}
        self._serving = state["urls"]["serving"]
        self._home = home
        self._asset = asset
        credentials = load_credentials(home)
        self._who, self._key = "the public", None
        if subject is not None and credentials is not None:
            self._who, self._key = subject, credentials.keys[subject]

    def urls(self, query: str, bbox: list[float] | None) -> dict[str, str]:
        """Return the doors of the asset; the tile is the one in the middle of the bounds."""
        west, south, east, north = bbox or [-84.41, 36.44, -84.07, 36.73]
        x, y = tile_of((west + east) / 2, (south + north) / 2, TILE_ZOOM)
        doors = {
            "item": f"stac/{self._asset}",
            "tile": f"tiles/{self._asset}/{TILE_ZOOM}/{x}/{y}.png",
            "tilejson": f"tiles/{self._asset}/tilejson.json",
            "preview": f"preview/{self._asset}.png",
            "cog": f"download/{self._asset}",
        }
        return {name: f"{self._serving}/{path}{query}" for name, path in doors.items()}

    def closed(self, version: int) -> None:
        """Check that no door shows a version to the public."""
        for name, url in self.urls(f"?version={version}", None).items():
            check(f"{name} of version {version} is closed", fetch(url).status == 404)

    def hidden(self, version: int) -> None:
        """Check that no door shows a version and that the catalogue does not have it."""
        self.closed(version)
        check(f"pgstac lacks version {version}", self._catalogued(version) is None)

    def latest_is(self, version: int) -> None:
        """Check which version `?version=latest` means now."""
        item = json.loads(fetch(self.urls("?version=latest", None)["item"], self._key).body)
        check(f"?version=latest is version {version} for {self._who}", item.get("id") == f"{self._asset}-v{version}")

    def doors(self, version: int, preview: Path) -> None:
        """Check that every door shows a version, and write its preview."""
        item_answer = fetch(self.urls("?version=latest", None)["item"])
        check("the STAC item is public", item_answer.status == 200)
        item = json.loads(item_answer.body)
        urls = self.urls("?version=latest", item["bbox"])
        answers = {name: fetch(url) for name, url in urls.items()}
        for name, answer in answers.items():
            check(f"{name} answers", answer.status == 200 and len(answer.body) > 0)
        check("the tile is a PNG", answers["tile"].body.startswith(PNG))
        check("the preview is a PNG", answers["preview"].body.startswith(PNG))
        catalogued = self._catalogued(version)
        check("pgstac has the item", catalogued is not None and catalogued["id"] == item["id"])
        preview.parent.mkdir(parents=True, exist_ok=True)
        preview.write_bytes(answers["preview"].body)
        for name, url in urls.items():
            sys.stdout.write(f"  {name:9}{url}\n")

    def _catalogued(self, version: int) -> dict[str, Any] | None:
        with psycopg.connect(Cluster(self._home.resolve()).admin_conninfo("geodag")) as conn:
            conn.execute("SET search_path = pgstac, public")
            row = conn.execute(
                "SELECT pgstac.content_hydrate(i) FROM pgstac.items AS i WHERE id = %s", (f"{self._asset}-v{version}",)
            ).fetchone()
        return None if row is None else dict(row[0])


def check(what: str, holds: bool) -> None:
    """Print one check; end the program when it does not hold."""
    sys.stdout.write(f"  {'✓' if holds else '✗'} {what}\n")
    if not holds:
        sys.exit(1)


def main() -> None:
    """Run the checks that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=("hidden", "closed", "latest-is", "doors"))
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--asset", required=True)
    parser.add_argument("--version", type=int, required=True)
    parser.add_argument("--as", dest="subject", help="whose key of the local stack asks; nobody's by default")
    parser.add_argument("--preview", type=Path, default=Path("preview.png"))
    arguments = parser.parse_args()
    checks = Checks(arguments.home, arguments.asset, arguments.subject)
    actions: dict[str, Callable[[], None]] = {
        "hidden": lambda: checks.hidden(arguments.version),
        "closed": lambda: checks.closed(arguments.version),
        "latest-is": lambda: checks.latest_is(arguments.version),
        "doors": lambda: checks.doors(arguments.version, arguments.preview),
    }
    actions[arguments.check]()


if __name__ == "__main__":
    main()
