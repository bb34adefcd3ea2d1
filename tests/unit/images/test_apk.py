"""Alpine's packages for layers: what apk may want, and what is refused of a mirror."""

from __future__ import annotations

import contextlib
import gzip
import tarfile
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound, QuicksandError
from quicksand_images import apk_mirror
from quicksand_images.apk import (
    Package,
    is_right,
    may_want,
    parse_packages,
    parse_repositories,
    read_index,
    split_members,
)
from quicksand_images.apk_mirror import fetch_apks
from quicksand_images.packages import package_cache

from tests.unit.images.alpine_mirror import AlpineSigner, make_alpine_mirror, make_apk
from tests.unit.images.mirrors import Served, serve

INDEX = """\
C:Q1abc=
P:tool
V:2.0-r1
S:100
D:libtool=2.0-r1 so:libz.so.1 /bin/sh !other cmd:awk>=1

P:libtool
V:2.0-r1
p:so:libtool.so.2=2.0

P:zlib
V:1.3-r2
p:so:libz.so.1=1.3

P:gawk
V:5-r0
p:cmd:awk=5-r0

P:tool-openrc
V:2.0-r1
i:openrc tool=2.0-r1

P:tool-doc
V:2.0-r1
i:docs tool=2.0-r1

P:../evil
V:1

P:evil
V:../1

P:sizeless
V:1
S:-1
"""


def names(packages: list[Package]) -> list[str]:
    return [package.name for package in packages]


def test_what_a_package_needs_comes_along_and_what_is_there_does_not() -> None:
    offers = parse_packages(INDEX)
    assert names(offers) == ["tool", "libtool", "zlib", "gawk", "tool-openrc", "tool-doc"]
    installed = parse_packages("P:openrc\nV:1\n\nP:zlib\nV:1.3-r2\np:so:libz.so.1=1.3\n")
    assert names(may_want(["tool"], offers, installed)) == [
        "gawk",
        "libtool",
        "tool",
        "tool-openrc",
    ]
    # Another version of what is there may be what the new one needs.
    older = parse_packages("P:openrc\nV:1\n\nP:zlib\nV:1.2-r0\np:so:libz.so.1=1.2\n")
    assert "zlib" in names(may_want(["tool"], offers, older))
    assert may_want(["zlib"], offers, installed) == []


def test_a_package_that_nobody_has_is_named() -> None:
    with pytest.raises(ImageNotFound, match="'nothing'"):
        may_want(["nothing"], parse_packages(INDEX), [])


def test_repositories_with_a_tag_or_on_the_guest_itself_are_left_out() -> None:
    text = "# https://no\nhttps://a/main/\n@edge https://b/edge\n/media/cdrom\n\nhttp://c/main\n"
    assert parse_repositories(text) == ["https://a/main", "http://c/main"]


def test_a_size_of_thousands_of_digits_is_none() -> None:
    found = parse_packages(f"P:big\nV:1\nS:{'9' * 5000}\n\nP:tool\nV:1\nS:{'9' * 15}\n")
    assert names(found) == ["tool"]


def test_more_packages_than_anybody_has_are_refused() -> None:
    text = "P:a\nV:1\n\n" * 11
    assert len(parse_packages(text, most=11)) == 11
    with pytest.raises(ImageError, match="more than"):
        parse_packages(text, most=10)


def test_a_word_that_many_provide_and_want_is_looked_up_once() -> None:
    offers = [
        Package(name=f"p{number}", version="1", provides=("x",), depends=("x",) * 1000)
        for number in range(400)
    ]
    began = time.process_time()
    assert len(may_want(["x"], offers, [])) == 400
    assert time.process_time() - began < 4, "400,000 words, with 400 offers each"


@pytest.mark.parametrize("kind", ["chained", "negative", "none"])
def test_an_index_that_is_made_to_keep_its_reader_busy_is_refused(
    tmp_path: Path, kind: str
) -> None:
    info = tarfile.TarInfo("APKINDEX" if kind == "negative" else "other")
    if kind == "negative":
        info.type, info.size = tarfile.REGTYPE, 0
        info.name = "other"
        data = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
        data[124:136] = (-512 & (256**12 - 1)).to_bytes(12, "big")
        data[148:156] = b" " * 8
        data[148:156] = b"%06o\0 " % sum(data)
    elif kind == "chained":
        info.type = tarfile.XHDTYPE
        data = bytearray(info.tobuf(tarfile.USTAR_FORMAT) * 5000)
    else:
        data = bytearray(info.tobuf(tarfile.USTAR_FORMAT)) + bytes(1024)
    path = tmp_path / "APKINDEX.tar.gz"
    path.write_bytes(gzip.compress(bytes(data) + bytes(1024)))
    with pytest.raises(ImageError, match="the index of https://a/main cannot be read"):
        read_index(path, "https://a/main")


async def test_repositories_without_end_are_refused(tmp_path: Path) -> None:
    many = [f"https://127.0.0.1:1/{number}" for number in range(17)]
    with pytest.raises(ImageError, match="17 repositories, more than 16"):
        await fetch_apks(["x"], [], many, Architecture.X86_64, tmp_path, lambda *_: None)


@given(st.text(max_size=300) | st.text(alphabet="PVDSpiC: \n:a1-", max_size=300))
def test_any_text_is_an_index_or_nothing(text: str) -> None:
    for package in parse_packages(text):
        assert "/" not in package.file


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda data: b"\x1f\x8b\x08" + data))
def test_what_is_no_gzip_is_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert all(isinstance(part, tuple) for part in split_members(data))


@dataclass
class Mirror:
    place: Path
    served: Served
    target: Path

    async def fetch(self, *wanted: str) -> list[Package]:
        self.target.mkdir()
        return await fetch_apks(
            wanted, [], [self.served.url], Architecture.X86_64, self.target, lambda *_: None
        )


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))
    place = tmp_path / "mirror"
    apks = [make_apk("probe", depends="below"), make_apk("below")]
    make_alpine_mirror(place, AlpineSigner(tmp_path), apks)
    with serve(place) as served:
        yield Mirror(place, served, tmp_path / "target")


async def test_packages_are_laid_out_as_a_mirror_has_them_and_fetched_once(
    mirror: Mirror, tmp_path: Path
) -> None:
    found = await mirror.fetch("probe")
    assert names(found) == ["below", "probe"]
    top = mirror.target / "0" / "x86_64"
    assert sorted(path.name for path in top.iterdir()) == [
        "APKINDEX.tar.gz",
        "below-1.0-r0.apk",
        "probe-1.0-r0.apk",
    ]
    assert (mirror.target / "repositories").read_text() == "0\n"
    mirror.target = tmp_path / "again"
    await mirror.fetch("probe")
    assert sum(path.endswith(".apk") for path in mirror.served.asked) == 2


async def test_a_package_that_is_not_what_the_index_says_is_refused(mirror: Mirror) -> None:
    other = make_apk("probe", depends="below", script="echo something else")
    (mirror.place / "x86_64" / "probe-1.0-r0.apk").write_bytes(other.data)
    with pytest.raises(ImageError):
        await mirror.fetch("probe")
    assert not list(package_cache("alpine-amd64").glob("probe*"))


def test_files_that_are_not_those_of_the_metadata_are_found(tmp_path: Path) -> None:
    apk = make_apk("probe")
    (package,) = parse_packages(apk.entry)
    path = tmp_path / apk.file
    path.write_bytes(apk.data)
    assert is_right(path, package)
    for at in (12, len(apk.data) // 2, len(apk.data) - 12):
        data = bytearray(apk.data)
        data[at] ^= 0x10
        path.write_bytes(data)
        assert not is_right(path, package), at
    path.write_bytes(apk.data[:-1])
    assert not is_right(path, package)


def test_a_package_with_a_signature_before_its_metadata_is_right(tmp_path: Path) -> None:
    apk = make_apk("probe")
    (package,) = parse_packages(apk.entry)
    path = tmp_path / apk.file
    path.write_bytes(AlpineSigner(tmp_path).sign(b"its metadata") + apk.data)
    assert is_right(path, package)
    path.write_bytes(path.read_bytes() + b"more")
    assert not is_right(path, package)


async def test_an_index_or_a_package_that_is_too_large_is_refused(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(apk_mirror, "APK_MAX", 100)
    with pytest.raises(ImageError, match=r"\.apk has .* more than"):
        await mirror.fetch("probe")
    monkeypatch.setattr(apk_mirror, "INDEX_MAX", 100)
    mirror.target = tmp_path / "again"
    with pytest.raises(ImageError, match=r"APKINDEX\.tar\.gz has .* more than"):
        await mirror.fetch("probe")


def test_a_package_is_compared_without_being_read_as_a_whole(tmp_path: Path) -> None:
    apk = make_apk("probe", size=40 * 1024 * 1024)
    (package,) = parse_packages(apk.entry)
    path = tmp_path / apk.file
    path.write_bytes(apk.data)
    tracemalloc.start()
    try:
        assert is_right(path, package)
        assert tracemalloc.get_traced_memory()[1] < 20 * 1024 * 1024
    finally:
        tracemalloc.stop()


async def test_a_mirror_without_an_index_is_named(mirror: Mirror) -> None:
    (mirror.place / "x86_64" / "APKINDEX.tar.gz").write_bytes(b"<html>")
    with pytest.raises(ImageError, match=r"the index of .* cannot be read"):
        await mirror.fetch("probe")
    (mirror.place / "x86_64" / "APKINDEX.tar.gz").unlink()
    mirror.target = mirror.target.with_name("other")
    with pytest.raises(QuicksandError, match="APKINDEX"):
        await mirror.fetch("probe")
