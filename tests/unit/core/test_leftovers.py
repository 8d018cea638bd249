"""Which files nobody owns: every reason to keep one, and what goes when there is none."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from core.leftovers import Folder, Kind, Known, KnownVersion, folder_of, joined, named_tasks, ownerless
from core.ports import BlobEntry

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, YOUNG, BEFORE = NOW - timedelta(days=9), NOW - timedelta(days=1), NOW - timedelta(days=7)
ASSET = "a" * 32


def entry(name: str, modified_at: datetime = OLD, size: int = 5) -> BlobEntry:
    return BlobEntry(name, size, modified_at)


def folder(task: str, at: datetime = OLD, *, ordinal: int = 0, revision: int = 1, fetched: bool = False) -> Folder:
    name = f"{'fetched/' if fetched else ''}{ASSET}/{ordinal}/r{revision}/{task}/x.tif"
    found = folder_of("bronze" if fetched else "silver", entry(name, at))
    assert found is not None
    return found


def known(*paths: str, **changes: object) -> Known:
    return replace(Known(versions={0: KnownVersion(revision=1, paths=paths)}), **changes)  # type: ignore[arg-type]


def gone(folders: list[Folder], about: Known | None) -> list[str]:
    return [one.task_id for one in ownerless(folders, about, BEFORE)]


@pytest.mark.parametrize(
    ("container", "name", "prefix", "kind"),
    [
        ("silver", f"{ASSET}/0/r1/j_cog_0/cog.tif", f"{ASSET}/0/r1/j_cog_0/", Kind.OUTPUTS),
        ("silver", f"{ASSET}/0/r1/j_tiles-3_1/7/t.tif", f"{ASSET}/0/r1/j_tiles-3_1/", Kind.OUTPUTS),
        ("silver", f"{ASSET}/0/r1/notes/n.json", f"{ASSET}/0/r1/notes/", Kind.OUTPUTS),
        ("bronze", f"fetched/{ASSET}/0/r1/j_fetch_0/a.tif", f"fetched/{ASSET}/0/r1/j_fetch_0/", Kind.OUTPUTS),
        ("bronze", f"uploads/ddh/{'b' * 32}/a.tif", f"uploads/ddh/{'b' * 32}/", Kind.UPLOAD),
        ("silver", "payloads/j/values/x.json", "payloads/j/", Kind.VALUES),
    ],
)
def test_names_of_ours_are_known(container: str, name: str, prefix: str, kind: Kind) -> None:
    found = folder_of(container, entry(name))
    assert found is not None
    assert (found.container, found.prefix, found.kind, found.size_bytes) == (container, prefix, kind, 5)


@pytest.mark.parametrize(
    ("container", "name"),
    [
        ("bronze", "ddh/dem.tif"),
        ("bronze", f"{ASSET}/0/r1/j_cog_0/cog.tif"),
        ("silver", f"fetched/{ASSET}/0/r1/j_cog_0/cog.tif"),
        ("silver", f"{ASSET}/0/r1/by-hand/cog.tif"),
        ("silver", f"{ASSET}/0/j_cog_0/cog.tif"),
        ("silver", "by-hand/0/r1/j_cog_0/cog.tif"),
        ("silver", "archives/events/dag_job_events_202001.parquet"),
        ("external", f"{ASSET}/0/r1/j_cog_0/cog.tif"),
        ("bronze", "uploads/ddh/by-hand/a.tif"),
        ("silver", f"uploads/ddh/{'b' * 32}/a.tif"),
    ],
)
def test_other_names_are_never_touched(container: str, name: str) -> None:
    assert folder_of(container, entry(name)) is None


def test_a_folder_is_as_young_as_its_youngest_file() -> None:
    both = joined(folder("j_a_0"), folder("j_a_0", YOUNG))
    assert (both.files, both.size_bytes, both.modified_at) == (2, 10, YOUNG)


def test_tasks_are_read_from_paths() -> None:
    assert named_tasks([f"silver/{ASSET}/0/r1/j_a_0/x.tif", "silver/other", "bronze/x"]) == {"j_a_0"}


def test_what_is_named_stays_and_the_rest_goes() -> None:
    folders = [folder(name) for name in ("j_version_0", "j_result_0", "j_listed_0", "j_lost_0")]
    about = known(
        f"silver/{ASSET}/0/r1/j_version_0/cog.tif",
        tasks=frozenset({"j_result_0"}),
        listed={0: {"j_listed_0"}},
        jobs=frozenset({"j"}),
    )
    assert gone(folders, about) == ["j_lost_0"]
    assert gone([folder("j_lost_0", YOUNG)], about) == []


@pytest.mark.parametrize(
    "busy", [{"busy": True}, {"versions": {0: KnownVersion(revision=1), 1: KnownVersion(revision=1, busy=True)}}]
)
def test_nothing_goes_while_somebody_works_for_the_asset(busy: dict[str, object]) -> None:
    assert gone([folder("j_lost_0")], known(**busy)) == []


def test_a_purged_version_keeps_nothing_and_an_unknown_one_what_jobs_name() -> None:
    purged = known(tasks=frozenset({"j_a_0"}), versions={0: KnownVersion(revision=2, purged=True)})
    assert gone([folder("j_a_0"), folder("j_a_0", fetched=True)], purged) == ["j_a_0", "j_a_0"]
    unknown = known(tasks=frozenset({"j_a_0"}))
    assert gone([folder("j_a_0", ordinal=7), folder("j_b_0", ordinal=7)], unknown) == ["j_b_0"]
    assert gone([folder("j_a_0"), folder("j_b_0", YOUNG)], None) == ["j_a_0"]


def test_files_of_an_earlier_revision_stay_as_long_as_its_jobs() -> None:
    later = known(versions={0: KnownVersion(revision=2)})
    assert gone([folder("j_a_0")], replace(later, tasks=frozenset({"j_a_0"}))) == []
    assert gone([folder("j_a_0")], later) == ["j_a_0"]


def test_a_copied_source_of_what_is_live_stays_when_nobody_knows_its_job_any_more() -> None:
    copies = [folder("j_fetch_0", fetched=True), folder("j_fetch_1", fetched=True)]
    assert gone(copies, known()) == []
    assert gone(copies, known(jobs=frozenset({"j"}), tasks=frozenset({"j_fetch_1"}))) == ["j_fetch_0"]
    assert gone(copies, known(versions={0: KnownVersion(revision=2)})) == ["j_fetch_0", "j_fetch_1"]


def test_notes_go_before_the_first_file_and_alone_once_no_job_could_read_them() -> None:
    folders = [folder("j_lost_0"), folder("notes", YOUNG), folder("j_kept_0")]
    about = known(tasks=frozenset({"j_kept_0"}), jobs=frozenset({"j"}))
    assert gone(folders, about) == ["notes", "j_lost_0"]
    assert gone(folders[1:], about) == []
    assert gone([folder("notes"), folder("j_kept_0")], about) == []
    assert gone([folder("notes")], known()) == ["notes"]
    assert gone([folder("notes", ordinal=0, revision=2), folder("j_lost_0")], about) == ["j_lost_0"]
