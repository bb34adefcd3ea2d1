"""Names go to the host and back without loss; what is no name goes nowhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand_smb.names import (
    from_host,
    from_wire,
    host_path,
    target_from_wire,
    target_to_wire,
    to_wire,
)
from quicksand_smb.store import Reason, StoreError

from tests.each import each

host_names = (
    st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=6),
            st.text(min_size=1, max_size=6).map(lambda text: text.encode("utf-8", "replace")),
            st.sampled_from(
                [b".", b" ", b":", b"\\", b"\xff", "\uf022".encode(), "\uf0ff".encode()]
            ),
        ),
        min_size=1,
        max_size=8,
    )
    .map(b"".join)
    .map(lambda name: name.replace(b"/", b"").replace(b"\0", b"")[:255])
    .filter(lambda name: name not in (b"", b".", b".."))
)


@given(host_names, st.booleans())
def test_every_name_of_the_host_comes_back(name: bytes, posix: bool) -> None:
    wire = to_wire(from_host(name), posix=posix)
    assert len(wire.encode("utf-16-le")) <= 2 * 255
    assert host_path(from_wire(wire, posix=posix, separator="\0")) == [name]


@given(host_names, host_names, st.booleans())
def test_no_two_names_of_the_host_become_one(one: bytes, other: bytes, posix: bool) -> None:
    wires = {to_wire(from_host(name), posix=posix) for name in (one, other)}
    assert len(wires) == len({one, other})


def test_each_single_byte_that_linux_allows_is_a_name_part() -> None:
    for byte in set(range(1, 256)) - {ord("/")}:
        name = b"x" + bytes([byte]) + b"y"
        wire = to_wire(from_host(name))
        assert host_path(from_wire(wire, separator="\0")) == [name]
        assert not set(wire) & set('"*:<>?\\|') and min(map(ord, wire)) >= 0x20


@each(
    ("host", "wire"),
    [
        (b'a"b', "a\uf020b"),
        (b"a:b", "a\uf022b"),
        (b"a\\b", "a\uf026b"),
        (b"a|b", "a\uf027b"),
        (b"end ", "end\uf028"),
        (b"end.", "end\uf029"),
        (b"a.b c", "a.b c"),
        (b"\x1b[31m", "\uf01b[31m"),
        (b"caf\xe9", "caf\uf0e9"),
        ("café".encode(), "café"),
        ("a\uf022b".encode(), "a\uf0ef\uf080\uf0a2b"),
        (b"%C3%A4%FF", "%C3%A4%FF"),
    ],
)
def test_the_map_is_that_of_the_linux_client(host: bytes, wire: str) -> None:
    assert to_wire(from_host(host)) == wire
    assert host_path(from_wire(wire)) == [host]


def test_a_path_is_split_and_the_root_is_empty() -> None:
    assert from_wire("") == ()
    assert from_wire("a\\b\\c") == ("a", "b", "c")
    assert from_wire("a\\b/c:d", posix=True, separator="/") == ("a\\b", "c:d")


BAD = [
    "\\", "\\a", "a\\", "a\\\\b", ".", "..", "..\\x", "a\\..\\..\\x", "a/../b", "/abs", "C:\\",
    "C:", "\\\\?\\C:", "a\0b", "file:stream", "file::$DATA", "a:b:$INDEX", "a*", "a?", "a<b",
    "a\x1b[2J", "\ud800", "\udc2e\udc2e", "\udcff", "\uf029",
    "\uf029\uf029", "a\uf0c3\uf0a4", "\\".join("x" * 600),
]  # fmt: skip


@each("path", BAD)
def test_what_is_no_name_is_refused(path: str) -> None:
    with pytest.raises(StoreError) as caught:
        from_wire(path)
    assert caught.value.reason is Reason.BAD_NAME


@each(
    "names",
    [("",), (".",), ("..",), ("a/b",), ("a", "..", "b"), ("a\0",), ("\ud800",), ("x" * 256,),
     ("ä" * 128,), ("d",) * 600, ("x" * 200,) * 30, ("/",), ("a", "/etc/passwd")],
)  # fmt: skip
def test_the_store_takes_no_name_on_trust(names: tuple[str, ...]) -> None:
    with pytest.raises(StoreError) as caught:
        host_path(names)
    assert caught.value.reason is Reason.BAD_NAME


@given(st.text(st.characters(), max_size=40), st.booleans())
def test_any_text_is_a_name_or_refused_and_never_leaves(text: str, posix: bool) -> None:
    try:
        parts = host_path(from_wire(text, posix=posix, separator="/" if posix else "\\"))
    except StoreError as error:
        assert error.reason is Reason.BAD_NAME
        return
    for part in parts:
        assert part not in (b"", b".", b"..") and b"/" not in part and b"\0" not in part


@given(st.lists(host_names, min_size=1, max_size=4).map(b"/".join))
def test_targets_of_symlinks_are_told_as_they_are(target: bytes) -> None:
    text = target_to_wire(from_host(target))
    try:
        assert text == target.decode()
    except UnicodeDecodeError:
        assert text == "".join(
            chr(ord(char) - 0xDC00 + 0xF000) if 0xDC80 <= ord(char) <= 0xDCFF else char
            for char in target.decode("utf-8", "surrogateescape")
        )


# What Linux 6.12 sends for a target: without its first separator.
@each(
    ("target", "sent", "absolute"),
    [
        ("/usr/bin/env", "usr/bin/env", True),
        ("//a", "/a", True),
        ("/", "", True),
        ("a/b", "a/b", False),
        ("../up", "../up", False),
        ("/a:b|c*? ", "a\uf022b\uf027c\uf021\uf025\uf028", True),
        ("x /y.", "x /y\uf029", False),
    ],
)
def test_targets_of_symlinks_are_stored_as_they_were_meant(
    target: str, sent: str, absolute: bool
) -> None:
    assert target_from_wire(sent, posix=True, absolute=absolute) == target
    assert target_to_wire(target) == target


def test_targets_may_lead_anywhere() -> None:
    for target in ("../../etc/passwd", "/etc/shadow", "a/./b"):
        is_absolute = target.startswith("/")
        assert target_from_wire(target, absolute=is_absolute) == target == target_to_wire(target)
    for bad in ("", "a\0b", "\ud800"):
        with pytest.raises(StoreError):
            target_from_wire(bad)
