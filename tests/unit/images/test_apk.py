"""Alpine's packages for layers: what apk may want, and what is refused of a mirror."""

from __future__ import annotations

import contextlib
import gzip
import io
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
    Limits,
    Package,
    closure,
    may_want,
    parse_packages,
    parse_repositories,
)
from quicksand_images.apk_file import GzipMember, is_right, read_index, read_signed
from quicksand_images.apk_keys import TrustedKeys
from quicksand_images.apk_mirror import fetch_apks
from quicksand_images.packages import package_cache

from tests.each import each
from tests.unit.images.alpine_mirror import KEY_NAME, AlpineSigner, make_alpine_mirror, make_apk
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


def parse(text: str, limits: Limits | None = None) -> list[Package]:
    return parse_packages([text.encode()], limits=limits)


def names(packages: list[Package]) -> list[str]:
    return [package.name for package in packages]


def test_what_a_package_needs_comes_along_and_what_is_there_does_not() -> None:
    offers = parse(INDEX)
    assert names(offers) == ["tool", "libtool", "zlib", "gawk", "tool-openrc", "tool-doc"]
    installed = parse("P:openrc\nV:1\n\nP:zlib\nV:1.3-r2\np:so:libz.so.1=1.3\n")
    assert names(may_want(["tool"], offers, installed)) == [
        "gawk",
        "libtool",
        "tool",
        "tool-openrc",
    ]
    # Another version of what is there may be what the new one needs.
    older = parse("P:openrc\nV:1\n\nP:zlib\nV:1.2-r0\np:so:libz.so.1=1.2\n")
    assert "zlib" in names(may_want(["tool"], offers, older))
    assert may_want(["zlib"], offers, installed) == []


def test_a_package_that_nobody_has_is_named() -> None:
    with pytest.raises(ImageNotFound, match="'nothing'"):
        may_want(["nothing"], parse(INDEX), [])


def test_repositories_with_a_tag_or_on_the_guest_itself_are_left_out() -> None:
    text = "# https://no\nhttps://a/main/\n@edge https://b/edge\n/media/cdrom\n\nhttp://c/main\n"
    assert parse_repositories(text) == ["https://a/main", "http://c/main"]


def test_a_size_of_thousands_of_digits_is_none() -> None:
    found = parse(f"P:big\nV:1\nS:{'9' * 5000}\n\nP:tool\nV:1\nS:{'9' * 15}\n")
    assert names(found) == ["tool"]


def test_more_packages_than_anybody_has_are_refused() -> None:
    text = "P:a\nV:1\n\n" * 11
    assert len(parse(text, Limits(packages=11))) == 11
    with pytest.raises(ImageError, match="more than"):
        parse(text, Limits(packages=10))
    # Those of several lists count together.
    limits = Limits(packages=21)
    parse(text, limits)
    with pytest.raises(ImageError, match="more than"):
        parse(text, limits)


def packed_index(path: Path, text: bytes) -> Path:
    """An index with this text."""
    info = tarfile.TarInfo("APKINDEX")
    info.size = len(text)
    with (
        gzip.open(path, "wb", compresslevel=1) as packer,
        tarfile.open(fileobj=packer, mode="w") as archive,
    ):
        archive.addfile(info, io.BytesIO(text))
    return path


@each("kind", ["words", "letters", "lines", "packages"])
def test_reading_an_index_that_is_made_to_take_memory_takes_little(
    tmp_path: Path, kind: str
) -> None:
    size = 4 * 1024 * 1024
    text = {
        "words": b"P:a\nV:1\nD:" + b"a " * (size // 2),
        "letters": b"P:a\nV:1\nT:" + "\U0001f600".encode() * (size // 4),
        "lines": b"P:a\nV:1\n" + b"x:\n" * (size // 3),
        "packages": b"P:a\nV:1\np:a b c d\n\n" * 40_000,
    }[kind]
    path = packed_index(tmp_path / "APKINDEX.tar.gz", text)
    del text
    tracemalloc.start()
    try:
        with contextlib.suppress(ImageError):
            may_want(["a"], read_index(path, "https://a/main", Limits()), [])
        assert tracemalloc.get_traced_memory()[1] < 10 * size
    finally:
        tracemalloc.stop()


def test_more_dependencies_than_anybody_has_are_refused() -> None:
    text = "P:a\nV:1\nD:b c d\np:e f\ni:g\n\n"
    assert len(parse(text * 2, Limits(words=12))) == 2
    with pytest.raises(ImageError, match="more dependencies"):
        parse(text * 2, Limits(words=11))
    with pytest.raises(ImageError, match="more dependencies"):
        parse(text * 2, Limits(text=20))


@given(st.text(alphabet="PVD: \na1", max_size=60).map(str.encode), st.integers(1, 7))
def test_pieces_give_what_the_whole_gives(text: bytes, size: int) -> None:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert parse_packages(pieces) == parse_packages([text])


def test_the_first_programs_are_those_that_apk_would_prefer() -> None:
    offers = parse(
        """P:apk\nV:1\nD:/bin/sh so:libc !other\n
P:dash-sh\nV:1\nk:50\np:/bin/sh=1\n
P:busy-sh\nV:1\nk:100\np:/bin/sh=1\nD:busybox=1\n
P:busybox\nV:1\np:cmd:busybox=1\n
P:musl\nV:2\np:so:libc=2
"""
    )
    assert names(closure(["apk"], offers)) == ["apk", "busy-sh", "busybox", "musl"]
    with pytest.raises(ImageNotFound, match="'so:libc'"):
        closure(["apk"], offers[:-1])


def test_a_word_that_many_provide_and_want_is_looked_up_once() -> None:
    offers = [
        Package(name=f"p{number}", version="1", provides="x", depends=" ".join(["x"] * 1000))
        for number in range(400)
    ]
    began = time.process_time()
    assert len(may_want(["x"], offers, [])) == 400
    assert time.process_time() - began < 4, "400,000 words, with 400 offers each"


@each("kind", ["chained", "negative", "none"])
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
    with pytest.raises(
        ImageError, match=r"the index of https://a/main (cannot be read|is refused)"
    ):
        read_index(path, "https://a/main", Limits())


async def test_repositories_without_end_are_refused(tmp_path: Path) -> None:
    many = [f"https://127.0.0.1:1/{number}" for number in range(17)]
    with pytest.raises(ImageError, match="17 repositories, more than 16"):
        await fetch_apks(["x"], [], many, Architecture.X86_64, tmp_path, lambda *_: None)


@given(st.text(max_size=300) | st.text(alphabet="PVDSpiC: \n:a1-", max_size=300))
def test_any_text_is_an_index_or_nothing(text: str) -> None:
    for package in parse(text):
        assert "/" not in package.file


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda data: b"\x1f\x8b\x08" + data))
def test_what_is_no_gzip_is_refused(data: bytes) -> None:
    with contextlib.suppress(ImageError):
        assert GzipMember(io.BytesIO(data), 0, 1000, "it").end() <= len(data)


@dataclass
class Mirror:
    place: Path
    served: Served
    target: Path

    async def fetch(self, *wanted: str, keys: TrustedKeys | None = None) -> list[Package]:
        self.target.mkdir()
        found = await fetch_apks(
            wanted,
            [],
            [self.served.url],
            Architecture.X86_64,
            self.target,
            lambda *_: None,
            keys=keys,
        )
        return found.packages


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
    (package,) = parse(apk.entry)
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
    (package,) = parse(apk.entry)
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
    (package,) = parse(apk.entry)
    path = tmp_path / apk.file
    path.write_bytes(apk.data)
    tracemalloc.start()
    try:
        assert is_right(path, package)
        assert tracemalloc.get_traced_memory()[1] < 20 * 1024 * 1024
    finally:
        tracemalloc.stop()


# --- signatures, which the host verifies for a whole system


@pytest.fixture
def signed(mirror: Mirror, tmp_path: Path) -> AlpineSigner:
    """The mirror's packages are signed, as its index is."""
    signer = AlpineSigner(tmp_path)
    apks = [make_apk("probe", depends="below", signer=signer), make_apk("below", signer=signer)]
    make_alpine_mirror(mirror.place, signer, apks)
    return signer


async def test_what_the_keys_of_a_recipe_have_signed_is_taken_and_the_key_is_handed_on(
    mirror: Mirror, signed: AlpineSigner, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    # The one that counts need not be the first.
    keys = TrustedKeys(AlpineSigner(tmp_path / "other").public + signed.public)
    assert names(await mirror.fetch("probe", keys=keys)) == ["below", "probe"]
    assert (mirror.target / "keys" / KEY_NAME).read_text() == signed.public


async def test_an_index_that_is_signed_by_another_key_or_by_none_is_refused(
    mirror: Mirror, signed: AlpineSigner, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = AlpineSigner(tmp_path / "other")
    with pytest.raises(ImageError, match=f"APKINDEX.* by another key .{KEY_NAME}") as caught:
        await mirror.fetch("probe", keys=TrustedKeys(other.public))
    assert "keys" in caught.value.hint
    path = mirror.place / "x86_64" / "APKINDEX.tar.gz"
    whole = path.read_bytes()
    with path.open("rb") as file:
        path_start = GzipMember(file, 0, 10**6, "it").end()
    path.write_bytes(whole[path_start:])
    mirror.target = tmp_path / "unsigned"
    with pytest.raises(ImageError, match=r"APKINDEX.* is unsigned"):
        await mirror.fetch("probe", keys=TrustedKeys(signed.public))
    assert not [path for path in mirror.served.asked if path.endswith(".apk")]


@each("kind", ["RSA", "RSA256", "RSA512"])
def test_signatures_with_each_digest_are_verified(tmp_path: Path, kind: str) -> None:
    signer = AlpineSigner(tmp_path)
    keys = TrustedKeys(signer.public)
    index = packed_index(tmp_path / "index", b"P:a\nV:1\n").read_bytes()
    path = tmp_path / "signed"
    path.write_bytes(signer.sign(index, kind) + index)
    assert keys.require_signed(path, "it") == (KEY_NAME, signer.public)
    for at in (len(path.read_bytes()) - 12, len(signer.sign(index, kind)) + 12):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        (tmp_path / "changed").write_bytes(data)
        with pytest.raises(ImageError, match="it is refused: its signature is wrong"):
            keys.require_signed(tmp_path / "changed", "it")
    # Bytes behind the archive are part of what was signed.
    path.write_bytes(path.read_bytes() + index)
    with pytest.raises(ImageError, match="it is refused"):
        keys.require_signed(path, "it")


@each(
    ("kind", "name"),
    [("DSA", KEY_NAME), ("RSA", "../x.rsa.pub"), ("RSA", ""), ("RSA", "x")],
)
def test_a_signature_of_an_unknown_kind_or_name_is_none(
    tmp_path: Path, kind: str, name: str
) -> None:
    signer = AlpineSigner(tmp_path)
    index = packed_index(tmp_path / "index", b"P:a\nV:1\n").read_bytes()
    (tmp_path / "signed").write_bytes(signer.sign(index, kind, name) + index)
    assert read_signed(tmp_path / "signed", "it", metadata=False).signatures == ()


async def test_a_package_that_another_key_has_signed_is_refused_and_one_in_the_cache_fetched_anew(
    mirror: Mirror, signed: AlpineSigner, tmp_path: Path
) -> None:
    keys = TrustedKeys(signed.public)
    place = mirror.place / "x86_64"
    whole = (place / "probe-1.0-r0.apk").read_bytes()
    # As large as the one with a signature, and by a key that the recipe does not have.
    (tmp_path / "other").mkdir()
    other = make_apk("probe", depends="below", signer=AlpineSigner(tmp_path / "other"))
    (place / "probe-1.0-r0.apk").write_bytes(other.data)
    await mirror.fetch("probe")  # a layer's: signatures are for the guest's apk
    mirror.target = tmp_path / "again"
    with pytest.raises(ImageError, match=r"probe-1\.0-r0\.apk is refused: its signature"):
        await mirror.fetch("probe", keys=keys)
    (place / "probe-1.0-r0.apk").write_bytes(whole)
    mirror.target = tmp_path / "third"
    assert names(await mirror.fetch("probe", keys=keys)) == ["below", "probe"]


@each("count", [1, 17])
def test_what_stands_beside_a_signature_is_not_taken_for_what_is_signed(
    tmp_path: Path, count: int
) -> None:
    """A mirror could put its own list there, in front of the one that the distribution signed."""
    signer = AlpineSigner(tmp_path)
    genuine = packed_index(tmp_path / "index", b"P:a\nV:1\n\n").read_bytes()
    member = gzip.decompress(signer.sign(genuine)) * count
    false = gzip.decompress(packed_index(tmp_path / "false", b"P:evil\nV:1\n\n").read_bytes())
    path = tmp_path / "signed"
    path.write_bytes(gzip.compress(member + false) + genuine)
    assert names(read_index(path, "http://mirror", Limits())) == ["evil"]
    with pytest.raises(ImageError, match=r"it is refused: it has (other files|more than 16)"):
        TrustedKeys(signer.public).require_signed(path, "it")


def test_a_packages_metadata_beside_the_signature_are_refused(tmp_path: Path) -> None:
    signer = AlpineSigner(tmp_path)
    apk, evil = (make_apk("probe", script=script) for script in ("true", "evil"))
    with io.BytesIO(evil.data) as file:
        metadata = evil.data[: GzipMember(file, 0, 10**6, "it").end()]
    with io.BytesIO(apk.data) as file:
        signed = apk.data[: GzipMember(file, 0, 10**6, "it").end()]
    path = tmp_path / apk.file
    path.write_bytes(
        gzip.compress(gzip.decompress(signer.sign(signed)) + gzip.decompress(metadata)) + apk.data
    )
    with pytest.raises(ImageError, match="is refused: it has other files beside its signatures"):
        TrustedKeys(signer.public).require_signed(path, "it", metadata=True)


def test_an_index_of_usual_size_without_a_signature_is_called_unsigned(tmp_path: Path) -> None:
    path = packed_index(tmp_path / "index", b"P:a\nV:1\nT:x\n\n" * 600_000)
    with pytest.raises(ImageError, match="it is unsigned"):
        TrustedKeys(AlpineSigner(tmp_path).public).require_signed(path, "it")


@each(
    ("text", "why"),
    [
        ("", "no keys"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "cannot be read"),
    ],
)
def test_malformed_keys_are_refused(text: str, why: str) -> None:
    with pytest.raises(ImageError, match=why):
        TrustedKeys(text)


def test_a_key_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="2048 bits"):
        TrustedKeys(AlpineSigner(tmp_path, bits=1024).public)


async def test_a_mirror_without_an_index_is_named(mirror: Mirror) -> None:
    (mirror.place / "x86_64" / "APKINDEX.tar.gz").write_bytes(b"<html>")
    with pytest.raises(ImageError, match=r"the index of .* cannot be read"):
        await mirror.fetch("probe")
    (mirror.place / "x86_64" / "APKINDEX.tar.gz").unlink()
    mirror.target = mirror.target.with_name("other")
    with pytest.raises(QuicksandError, match="APKINDEX"):
        await mirror.fetch("probe")
