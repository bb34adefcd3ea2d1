"""The mapping between the guest's names of files and the host's.

A name of the host is up to 255 bytes, any but NUL and "/". On the wire it is UTF-16, and Windows
forbids some characters. The two are mapped both ways without loss:

* Linux and macOS clients put forbidden characters into a private range of Unicode ("SFM": U+F001 to
  U+F01F for control characters, U+F020 to U+F029 for ``"*:<>?\\|``, a space and a dot at the end;
  fs/smb/client/cifs_unicode.h). The host gets the real character.
* A byte that is not UTF-8 becomes U+F080 to U+F0FF, as with Cygwin. Percent escapes would confuse
  files with a percent sign in their names, which wget makes.
* If a name of the host contains one of these private characters, its bytes are escaped in the same
  way, so no two names become one.

Inside the server a name is a `str` with surrogate escapes (PEP 383). The encoding is always UTF-8,
whatever the locale is.
"""

from __future__ import annotations

from quicksand_smb.store_errors import Reason, StoreError

Names = tuple[str, ...]
"""The names of a path below the root of a share; () is the root."""

NAME_MAX = 255
"""The longest name in bytes (limits.h)."""

PATH_MAX = 4095
"""The longest path or symlink target in bytes, without the NUL (linux/limits.h)."""

DEPTH_MAX = 512
"""The most names of a path."""

_ESCAPES = {chr(0xF000 + byte): chr(0xDC00 + byte) for byte in range(0x80, 0x100)}
"""Single bytes that the guest sends. PEP 383 represents them in another range."""

_BYTES = str.maketrans({escape: byte for byte, escape in _ESCAPES.items()})

_SFM = {chr(0xF020 + index): char for index, char in enumerate('"*:<>?\\| .')}
_SFM |= {chr(0xF000 + code): chr(code) for code in range(1, 0x20)}

_FORBIDDEN = frozenset('\0/"*:<>?\\|') | {chr(code) for code in range(0x20)}
_FORBIDDEN_POSIX = frozenset("\0/?")
"""Linux replaces a byte that is not UTF-8 by a question mark (fs/smb/client/cifs_unicode.c,
cifs_strtoUTF16), which would make two names one. It sends a real question mark as U+F025."""


def _bytewise(char: str) -> str:
    return "".join([chr(0xF000 + byte) for byte in char.encode()])


class _Map:
    """The mapping between the characters of one kind of client and those of the host."""

    __slots__ = ("_at_end", "_special", "_to_guest", "_to_host", "forbidden")

    def __init__(self, forbidden: frozenset[str], private: dict[str, str], at_end: str) -> None:
        self.forbidden = forbidden
        to_host = _ESCAPES | private
        self._to_host = str.maketrans(to_host)
        # Private characters of the host are sent as bytes, or they would come back as others.
        to_guest = {char: _bytewise(char) for char in to_host}
        to_guest |= {char: code for code, char in to_host.items() if char not in at_end}
        self._to_guest = str.maketrans(to_guest)
        self._special = frozenset(to_guest)
        self._at_end = {char: code for code, char in to_host.items() if char in at_end}

    def to_guest(self, text: str) -> str:
        end = self._at_end.get(text[-1:]) if text else None
        if self._special.isdisjoint(text):
            return text[:-1] + end if end else text
        mapped = text.translate(self._to_guest)
        return mapped[:-1] + end if end else mapped

    def to_host(self, text: str) -> str:
        mapped = text.translate(self._to_host)
        return mapped.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


_WINDOWS = _Map(_FORBIDDEN, _SFM, at_end=" .")
_POSIX = _Map(
    _FORBIDDEN_POSIX,
    # Linux does not map backslashes.
    {code: char for code, char in _SFM.items() if char != "\\"},
    at_end=" .",
)


def from_wire(path: str, *, posix: bool = False, separator: str = "\\") -> Names:
    """Return the host's names for a path of a request. The path has no leading separator, and "" is
    the root. `posix` means that the client uses the POSIX extensions: then every character but NUL,
    "/" and "?" may come unmapped.

    Raises StoreError(BAD_NAME).
    """
    if not path:
        return ()
    parts = path.split(separator)
    if len(parts) > DEPTH_MAX:
        raise StoreError(Reason.BAD_NAME, "too deep")
    return tuple([_component(part, posix) for part in parts])


def _component(part: str, posix: bool) -> str:
    kind = _POSIX if posix else _WINDOWS
    if part in ("", ".", "..") or not kind.forbidden.isdisjoint(part):
        raise StoreError(Reason.BAD_NAME)
    if part.isascii():
        return part
    try:
        part.encode()
    except UnicodeEncodeError:
        # Inside this server a lone surrogate would mean a byte.
        raise StoreError(Reason.BAD_NAME) from None
    name = kind.to_host(part)
    if name in (".", "..") or (
        not _ESCAPES.keys().isdisjoint(part) and to_wire(name, posix=posix) != part
    ):
        # The second condition: escaped bytes that are UTF-8 would be another name of the file.
        raise StoreError(Reason.BAD_NAME)
    return name


def to_wire(name: str, *, posix: bool = False) -> str:
    """Return a name of the host as the guest sees it. `from_wire` reverses it."""
    return (_POSIX if posix else _WINDOWS).to_guest(name)


def target_from_wire(text: str, *, posix: bool = False, absolute: bool = False) -> str:
    """Return a symlink's target as the host stores it, separated by "/". It is data: it may be
    absolute and lead anywhere, since this server follows no link. Raises StoreError(BAD_NAME).

    `absolute` is the flag of its record. Linux leaves out the first separator of every target
    (`cifs_convert_path_to_utf16` in fs/smb/client/smb2misc.c), even of "//a".
    """
    if absolute and (posix or not text.startswith("/")):
        text = "/" + text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise StoreError(Reason.BAD_NAME) from None
    if not text or "\0" in text or (posix and "?" in text):
        raise StoreError(Reason.BAD_NAME)
    return (_POSIX if posix else _WINDOWS).to_host(text)


def target_to_wire(target: str) -> str:
    """Return a symlink's target as the guest sees it, still separated by "/". Linux does not map
    the characters of targets (`cifs_strndup_from_utf16`), so only bytes that are not UTF-8 are
    replaced."""
    return target.translate(_BYTES)


def host_path(names: Names) -> list[bytes]:
    """Return the names as the host stores them. Every name passes here on its way to a system call.

    Raises StoreError(BAD_NAME) for an invalid name, wherever it came from.
    """
    try:
        whole = "/".join(names).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise StoreError(Reason.BAD_NAME) from None
    parts = whole.split(b"/") if names else []
    if len(parts) != len(names) or len(parts) > DEPTH_MAX or len(whole) > PATH_MAX:
        raise StoreError(Reason.BAD_NAME)
    for part in parts:
        if part in (b"", b".", b"..") or len(part) > NAME_MAX:
            raise StoreError(Reason.BAD_NAME)
    if b"\0" in whole:
        raise StoreError(Reason.BAD_NAME)
    return parts


def names_of(path: bytes) -> Names:
    """Return the names of a path that `host_path` has made and "/" has joined."""
    return tuple(path.decode("utf-8", "surrogateescape").split("/")) if path else ()


def from_host(name: bytes) -> str:
    """Return a name that the host has reported."""
    return name.decode("utf-8", "surrogateescape")
