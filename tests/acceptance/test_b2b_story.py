"""The story of a dataset over HTTP alone: three versions, what goes wrong on the way, and who is told what and when."""

import os
import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from cli.stack.layout import REPOSITORY
from core.identity import CALLER_HEADER
from core.webhooks import RETRY_SECONDS
from tests.acceptance import rasters
from tests.acceptance.platform import Json, Platform
from tests.acceptance.story import FAILURES, PARTNER, Receiver, Story, receiving
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture(scope="module")
def story(platform: Platform, receiver: Receiver) -> Story:
    return Story(platform, receiver.url)


def test_three_versions_of_a_dataset_from_their_submits_to_the_public_and_back(
    platform: Platform, story: Story, receiver: Receiver
) -> None:
    assert story.refused("POST", "platform/webhooks/ddh/secrets", body={}) == (403, "FORBIDDEN")
    secret = story.ok("POST", "platform/webhooks/ddh/secrets", "admin", {"reason": "first secret"}, 201)["secret"]
    source = story.upload(rasters.geotiff(rasters.terrain(120, 160)), "dem.tif")
    asset, first = version_one_is_sent_twice_rejected_once_and_approved(story, source)
    second = version_two_fails_is_mended_and_approved(story, asset, source)
    third = version_three_comes_in_a_batch_is_approved_and_revoked(story, asset, source)
    the_public_sees_it_while_it_may(story, asset)
    what_is_listed(story, asset)
    what_was_told(story, receiver, secret, first, second, third)
    assert story.judged > 30  # how many more depends on how often it polls


def version_one_is_sent_twice_rejected_once_and_approved(story: Story, source: Json) -> tuple[str, list[str]]:
    body = story.body("story", "2024", source, title="Relief 2024", workflow_id="raster_stepwise")
    sent = story.call("POST", "platform/submit", body=body, Idempotency_Key="story-1")
    assert sent.status == 202
    assert (sent.headers["location"], sent.headers["retry-after"]) == (sent.json["status_url"], "2")
    assert story.call("POST", "platform/submit", body=body, Idempotency_Key="story-1").json == sent.json
    other = story.call("POST", "platform/submit", body=body | {"title": "Else"}, Idempotency_Key="story-1")
    assert other.problem[:2] == (409, "IDEMPOTENCY_CONFLICT")
    asset, request = sent.json["asset_id"], sent.json["request_id"]

    too_early = story.call("POST", "platform/submit", body=story.body("story", "2025", source))
    assert too_early.problem[:2] == (409, "VERSION_UNRESOLVED")
    assert too_early.json["next_actions"]
    status = story.final(request)
    assert (status["state"], status["review"], status["services"]) == ("completed", "pending_review", None)
    assert status["progress"]["stages"] == 3
    assert story.doors(asset, PARTNER) == {404}
    (waiting,) = [v for v in story.ok("GET", "assets/reviews", "reviewer")["reviews"] if v["asset_id"] == asset]
    assert (waiting["version_ordinal"], waiting["state"]) == (0, "pending_review")
    assert story.refused("POST", f"assets/{asset}/versions/0/approve", PARTNER, {"clearance_level": "ouo"})[0] == 403

    story.decide(asset, 0, "reject", reason="heights are feet")
    status = story.ok("GET", f"platform/status/{request}")
    assert (status["review"], status["reason"]) == ("rejected", "heights are feet")
    assert "resubmit" in status["next_actions"]
    again = story.ok("POST", f"platform/requests/{request}/resubmit", body={"title": "Relief, metres"}, status=202)
    assert (again["asset_id"], again["version_ordinal"], again["revision"]) == (asset, 0, 2)
    assert story.final(again["request_id"])["review"] == "pending_review"
    stale = story.refused(
        "POST", f"assets/{asset}/versions/0/approve", "reviewer", {"clearance_level": "ouo", "revision": 1}
    )
    assert stale == (409, "VERSION_STALE")
    story.decide(asset, 0, "approve", clearance_level="ouo", revision=2)
    assert story.refused("POST", f"assets/{asset}/versions/0/approve", "reviewer", {}) == (409, "INVALID_TRANSITION")
    assert story.doors(asset, "reader-ddh") == {200}
    assert story.doors(asset, None) == {404}
    return asset, [request, again["request_id"]]


def version_two_fails_is_mended_and_approved(story: Story, asset: str, source: Json) -> list[str]:
    nowhere = story.upload(rasters.geotiff(rasters.terrain(64, 64), crs=None), "nowhere.tif")
    body = story.body("story", "2025", nowhere, previous_version_ordinal=0)
    assert story.refused("POST", "platform/validate", body=body)[0] == 422
    sent = story.ok("POST", "platform/submit", body=body, status=202)
    status = story.final(sent["request_id"])
    assert (status["state"], status["review"]) == ("failed", None)
    assert [error["code"] for error in status["errors"]] == ["CRS_MISSING"]
    assert story.refused("POST", f"assets/{asset}/versions/1/approve", "reviewer", {})[0] == 409

    again = story.ok("POST", f"platform/requests/{sent['request_id']}/resubmit", body={"source": source}, status=202)
    assert (again["version_ordinal"], again["revision"]) == (1, 2)
    assert story.final(again["request_id"])["review"] == "pending_review"
    assert story.latest(asset) == 0
    story.ok(
        "POST",
        "platform/approve",
        "reviewer",
        {"asset_id": asset, "version_ordinal": 1, "reason": "good"},
    )
    assert story.latest(asset) == 1
    stale = story.body("story", "2026", source, previous_version_ordinal=0)
    assert story.refused("POST", "platform/submit", body=stale) == (409, "VERSION_STALE")
    return [sent["request_id"], again["request_id"]]


def version_three_comes_in_a_batch_is_approved_and_revoked(story: Story, asset: str, source: Json) -> str:
    gone = {"container_name": "bronze", "blob_name": "ddh/none.tif"}
    submits = [
        story.body("story", "2026", source),
        story.body("other", "1", source),
        story.body("third", "1", gone),
    ]
    results = story.ok("POST", "platform/submit/batch", body={"submits": submits})["results"]
    assert [(r["accepted"] or r["error"]).get("code") for r in results] == [None, None, "FILE_NOT_FOUND"]
    third, other = (result["accepted"]["request_id"] for result in results[:2])
    cancelled = story.call("POST", f"platform/requests/{other}/cancel", body={"reason": "sent by mistake"})
    assert cancelled.status == 200, cancelled.body
    assert cancelled.json["state"] == "cancelled"
    assert story.final(third)["review"] == "pending_review"
    decisions = {"decisions": [{"asset_id": asset, "version_ordinal": 2, "decision": "approve"}]}
    (decided,) = story.ok("POST", "assets/reviews/decisions", "reviewer", decisions)["results"]
    assert decided["error"] is None
    assert story.latest(asset) == 2
    story.decide(asset, 2, "revoke", reason="withdrawn by the survey")
    assert story.latest(asset) == 1
    assert story.doors(asset, "reader-ddh", "?version=2") == {404}
    return str(third)


def the_public_sees_it_while_it_may(story: Story, asset: str) -> None:
    assert story.doors(asset, None) == {404}
    assert story.refused("POST", f"assets/{asset}/clearance", PARTNER, {"clearance_level": "public"})[0] == 403
    raised = story.ok("POST", f"assets/{asset}/clearance", "reviewer", {"clearance_level": "public", "reason": "free"})
    assert raised["clearance_state"] == "public"
    wait_until(lambda: story.doors(asset, None) == {200}, "every door is open", 5)
    assert story.doors(asset, None, "?version=0") == {404}
    assert story.door("stac", f"{story.platform.serving}/stac/{asset}", None).json["id"] == f"{asset}-v1"
    lower = {"clearance_level": "ouo", "reason": "licence ended"}
    assert story.refused("POST", f"assets/{asset}/clearance", "reviewer", lower)[0] == 403
    assert story.ok("POST", f"assets/{asset}/clearance", "admin", lower)["clearance_state"] == "ouo"
    wait_until(lambda: story.doors(asset, None) == {404}, "every door is shut", 5)
    assert story.doors(asset, "reader-ddh") == {200}


def what_is_listed(story: Story, asset: str) -> None:
    versions = story.ok("GET", f"assets/{asset}/versions")["versions"]
    assert [(v["version_label"], v["revision"], v["approval_state"]) for v in versions] == [
        ("2024", 2, "approved"),
        ("2025", 2, "approved"),
        ("2026", 1, "revoked"),
    ]
    (found,) = story.ok("GET", "assets?ref.dataset_id=story")["assets"]
    assert (found["asset_id"], found["latest_approved_version_ordinal"]) == (asset, 1)
    listed = story.ok("GET", f"platform/requests?asset_id={asset}&limit=3")
    more = story.ok("GET", f"platform/requests?asset_id={asset}&limit=3&after={listed['next_after']}")
    assert len(listed["requests"]) + len(more["requests"]) == 5
    assert more["next_after"] is None
    tag = story.call("GET", f"assets/{asset}").headers["etag"]
    assert story.call("GET", f"assets/{asset}", If_None_Match=tag).status == 304
    entries = story.ok("GET", f"admin/audit?asset_id={asset}", "operator")["entries"]
    assert {"submitted", "rejected", "resubmitted", "approved", "revoked"} <= {entry["action"] for entry in entries}
    assert story.refused("GET", f"admin/audit?asset_id={asset}")[0] == 404


def what_was_told(
    story: Story, receiver: Receiver, secret: str, first: list[str], second: list[str], third: str
) -> None:
    one, two = first
    expected = {
        *((kind, one) for kind in ("completed", "pending_review", "rejected")),
        *((kind, two) for kind in ("completed", "pending_review", "approved")),
        ("failed", second[0]),
        *((kind, second[1]) for kind in ("completed", "pending_review", "approved")),
        *((kind, third) for kind in ("completed", "pending_review", "approved", "revoked")),
    }
    wait_until(lambda: expected <= set(receiver.told()), "everything is told, what failed by its backoff", 60)
    tries = receiver.times[str(receiver.first)]
    pauses = [after - before for before, after in pairwise(tries)]
    assert len(tries) == FAILURES + 1
    assert all(least * 0.9 <= pause <= least + 20 for pause, least in zip(pauses, RETRY_SECONDS, strict=False)), pauses
    path = "proxy/orchestrator/api/v1/webhooks/deliveries?limit=1000"

    def first_delivery() -> dict[str, object]:
        deliveries = story.ok("GET", path, "operator")["deliveries"]
        (found,) = [one for one in deliveries if one["delivery_id"] == receiver.first]
        return dict(found)

    wait_until(lambda: first_delivery()["state"] != "pending", "what the receiver heard is noted", 10)
    late = first_delivery()
    assert (late["state"], late["attempts"], late["last_status"]) == ("delivered", FAILURES + 1, 204)
    audited = story.ok("GET", "admin/audit?action=webhook_replayed", "operator")["entries"]
    assert audited == []  # nobody helped
    assert len({headers["webhook-id"] for headers, _ in receiver.seen}) == len(receiver.seen)
    receiver.check_signatures(secret)


def test_the_integrators_guide_runs_as_it_is_printed(platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "dem.tif").write_bytes(rasters.geotiff(rasters.terrain(120, 160)))
    blocks = re.findall(r"```bash\n(.*?)```", (REPOSITORY / "docs" / "b2b.md").read_text(), flags=re.DOTALL)
    assert len(blocks) >= 8
    end = "--- end of block"
    script = "set -euo pipefail\n" + "".join(f"{block}\necho '{end}'\n" for block in blocks)
    keys = platform.stack.credentials.keys
    environment = {
        "PATH": os.environ["PATH"],
        "GATEWAY": platform.gateway,
        "KEY": f"{CALLER_HEADER}: {keys[PARTNER]}",
        "REVIEWER": f"{CALLER_HEADER}: {keys['reviewer']}",
    }
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, (done.stdout[-1000:], done.stderr[-1000:])
    for block, printed in zip(blocks, done.stdout.split(end), strict=False):
        promised = [line.removeprefix("#=> ") for line in block.splitlines() if line.startswith("#=> ")]
        assert [line for line in printed.splitlines() if line in promised] == promised, (block, printed)
