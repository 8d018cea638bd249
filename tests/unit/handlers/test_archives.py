"""Archives of strangers: what is honest is read, what is not is named before anything leaves them."""

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from handlers import archives
from handlers.archives import ArchiveBroken, ArchiveError, ArchiveTooLarge, ArchiveUnsafe, extract, list_members

FILES = {"a/one.tif": b"II*\0" + b"1" * 5000, "a/two.txt": b"two", "empty.txt": b""}


def make_zip(path: Path, files: dict[str, bytes] = FILES) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in files.items():
            target.writestr(name, content)
    return path


def make_tar(path: Path, mode: str = "w", files: dict[str, bytes] = FILES, *more: tarfile.TarInfo) -> Path:
    with tarfile.open(path, mode) as target:  # type: ignore[call-overload]
        folder = tarfile.TarInfo("a")
        folder.type = tarfile.DIRTYPE
        target.addfile(folder)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            target.addfile(info, io.BytesIO(content))
        for info in more:
            target.addfile(info)
    return path


@pytest.mark.parametrize("kind", ["zip", "w", "w:gz", "w:bz2", "w:xz"])
def test_every_kind_is_listed_and_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "archive"
    path = make_zip(path) if kind == "zip" else make_tar(path, kind)
    assert archives.is_archive(path.read_bytes()[: archives.HEAD_BYTES])
    members = list_members(path)
    assert {member.name: member.size_bytes for member in members} == {name: len(FILES[name]) for name in FILES}
    assert members[0].head == FILES["a/one.tif"][: archives.HEAD_BYTES]
    seen: list[int] = []
    extract(path, {"a/one.tif": tmp_path / "out"}, seen.append)
    assert (tmp_path / "out").read_bytes() == FILES["a/one.tif"]
    assert sum(seen) == len(FILES["a/one.tif"])


@pytest.mark.parametrize("name", ["../x.tif", "a/../../x.tif", "/etc/x.tif", "C:/x.tif", "..\\x.tif"])
def test_a_name_that_leads_out_is_unsafe(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveUnsafe, match="leads out of it"):
        list_members(make_zip(tmp_path / "archive", {name: b"x"}))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_unsafe(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.linkname = kind, "/etc/hostname"
    with pytest.raises(ArchiveUnsafe, match=r"link|plain file"):
        list_members(make_tar(tmp_path / "archive", "w", FILES, info))


def test_a_link_in_a_zip_is_unsafe(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("x.tif")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "archive", "w") as target:
        target.writestr(info, "/etc/hostname")
    with pytest.raises(ArchiveUnsafe, match="is a link"):
        list_members(tmp_path / "archive")


def test_the_same_name_twice_is_unsafe(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "archive", "w") as target:
        target.writestr("x.tif", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            target.writestr("x.tif", b"2")
    with pytest.raises(ArchiveUnsafe, match="twice"):
        list_members(tmp_path / "archive")


@pytest.mark.parametrize("mode", ["zip", "w:gz"])
def test_what_would_become_too_large_is_refused_before_it_does(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "RATIO_FREE_BYTES", 1 << 20)
    files = {"bomb": bytes(8 << 20)}
    path = make_zip(tmp_path / "archive", files) if mode == "zip" else make_tar(tmp_path / "archive", mode, files)
    assert path.stat().st_size < 20_000
    with pytest.raises(ArchiveTooLarge):
        list_members(path)


def test_a_header_that_is_packed_more_than_it_says_is_stopped_while_it_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "RATIO_FREE_BYTES", 1 << 20)
    path = make_tar(tmp_path / "archive", "w:gz", {f"f{n}": bytes(1 << 19) for n in range(9)})
    with pytest.raises(ArchiveTooLarge):
        extract(path, {"never": tmp_path / "out"}, lambda _: None)


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    for path in (make_zip(tmp_path / "a", {str(n): b"x" for n in range(4)}), make_tar(tmp_path / "b")):
        with pytest.raises(ArchiveTooLarge, match="more than 3 members"):
            list_members(path)


def test_a_member_that_is_longer_than_declared_is_unsafe(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "archive", {"x": b"1" * 5000})
    content = path.read_bytes()
    path.write_bytes(content.replace((5000).to_bytes(4, "little"), (40).to_bytes(4, "little")))
    with pytest.raises(ArchiveError):
        extract(path, {"x": tmp_path / "out"}, lambda _: None)


@pytest.mark.parametrize("mode", ["zip", "w", "w:gz", "w:xz"])
@pytest.mark.parametrize("share", [0.2, 0.6])
def test_a_cut_archive_is_broken(tmp_path: Path, mode: str, share: float) -> None:
    path = make_zip(tmp_path / "archive") if mode == "zip" else make_tar(tmp_path / "archive", mode)
    content = path.read_bytes()
    useful = len(content.rstrip(b"\0"))
    path.write_bytes(content[: int(useful * share)])
    with pytest.raises(ArchiveBroken):
        extract(path, {"a/one.tif": tmp_path / "out", "a/two.txt": tmp_path / "out2"}, lambda _: None)


def test_a_member_with_a_password_is_named(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "archive", {"x.tif": b"1" * 50})
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(ArchiveBroken, match="password"):
        list_members(path)


def test_a_member_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArchiveBroken, match="no member 'x'"):
        extract(make_zip(tmp_path / "archive"), {"x": tmp_path / "out"}, lambda _: None)


@pytest.mark.parametrize("name", ["__MACOSX/a/._x.tif", "a/.DS_Store", "Thumbs.db"])
def test_leftovers_of_operating_systems_are_junk(name: str) -> None:
    assert archives.is_junk(name)
    assert not archives.is_junk("a/x.tif")
