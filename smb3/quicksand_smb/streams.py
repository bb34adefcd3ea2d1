"""Named streams of files, as Windows has them. They are kept in extended attributes, so they are
small.

`file:name` and `file:name:$DATA` mean the same; `file::$DATA` is the file itself ([MS-FSCC] 2.1.5).
The attributes have the names that Samba uses (vfs_streams_xattr), and each value ends with the zero
byte that Samba adds.
"""

from quicksand_smb.minimal_stdlib import Final
from quicksand_smb.node import Node
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import FileKind, Stat

PREFIX: Final = "DosStream."
SUFFIX: Final = ":$DATA"
LARGEST: Final = (64 << 10) - 1
"""The largest stream in bytes: Linux's limit for an attribute, less the zero byte (xattr(7))."""
LONGEST: Final = 200
"""The longest name of a stream in bytes of UTF-8. Prefix and suffix make it the name of an
attribute."""


def split(path: str) -> tuple[str, str]:
    r"""Return a path and the name of its stream; "" means the file itself. Raises Refusal."""
    start, separator, last = path.rpartition("\\")
    if ":" not in last:
        return path, ""
    name, stream, *kind = last.split(":")
    if not name or len(kind) > 1 or (kind and kind[0].upper() != "$DATA"):
        raise Refusal(Status.OBJECT_NAME_INVALID)
    if not stream and not kind:
        raise Refusal(Status.OBJECT_NAME_INVALID)
    check_name(stream)
    return f"{start}{separator}{name}", stream


def check_name(name: str) -> None:
    if any(char in "\0/\\:" for char in name):
        raise Refusal(Status.OBJECT_NAME_INVALID)
    try:
        long = len(name.encode()) > LONGEST
    except UnicodeEncodeError:
        long = True
    if long:
        raise Refusal(Status.OBJECT_NAME_INVALID)


def is_stream(attribute: str) -> bool:
    """Tell whether an extended attribute holds a stream."""
    return attribute.startswith(PREFIX) and attribute.endswith(SUFFIX)


def names_of(node: Node) -> list[str]:
    """Return the named streams of a file. Without extended attributes there are none."""
    try:
        found = node.attributes()
    except StoreError as error:
        if error.reason is Reason.UNSUPPORTED:
            return []
        raise
    return [name[len(PREFIX) : -len(SUFFIX)] for name in found if is_stream(name)]


def find(node: Node, wanted: str) -> str | None:
    """Return the stream of that name, ignoring case."""
    folded = wanted.casefold()
    return next((name for name in names_of(node) if name.casefold() == folded), None)


def remove_all(node: Node) -> None:
    for name in names_of(node):
        node.remove_attribute(PREFIX + name + SUFFIX)


class StreamNode(Node):
    """A stream in place of the file's own data. Everything else is the file's."""

    __slots__ = ("_base", "name")

    def __init__(self, base: Node, name: str) -> None:
        # Without Node.__init__, since the descriptor belongs to the base, which closes it.
        self._base = base
        self._share = base._share
        self._read = self._write = self._append = True
        self.held = base.held
        self.kind = FileKind.FILE
        self.frozen = base.frozen
        self.name = name
        self.first = None
        self.path = base.path
        self.opened_by = base.opened_by

    @property
    def _attribute(self) -> str:
        return PREFIX + self.name + SUFFIX

    def close(self) -> None:
        self._base.close()

    def _value(self) -> bytes:
        return self._base.attribute(self._attribute)[:-1]

    def _set(self, value: bytes | bytearray) -> None:
        if len(value) > LARGEST:
            raise StoreError(Reason.NO_SPACE)
        self._base.set_attribute(self._attribute, bytes(value) + b"\0")

    def make(self) -> None:
        self._set(b"")

    def remove(self) -> None:
        self._base.remove_attribute(self._attribute)

    def rename(self, name: str) -> None:
        value = self._value()
        self.remove()
        self.name = name
        self._set(value)

    def stat(self) -> Stat:
        found = self._base.stat()
        found.kind = FileKind.FILE
        found.size, found.nlink = self._size()
        found.allocated = found.size
        return found

    def _size(self) -> tuple[int, int]:
        """Return the size, and the number of links: 0 if the file was overwritten since."""
        try:
            return len(self._value()), 1
        except StoreError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
            return 0, 0

    def read_into(self, buffer: memoryview, offset: int) -> int:
        part = self._value()[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def write(self, data: memoryview, offset: int, *, at_end: bool = False) -> int:
        if offset + len(data) > LARGEST:
            raise StoreError(Reason.NO_SPACE)
        value = bytearray(self._value())
        value += bytes(max(offset - len(value), 0))
        value[offset : offset + len(data)] = data
        self._set(value)
        return len(data)

    def resize(self, size: int) -> None:
        if size > LARGEST:
            raise StoreError(Reason.NO_SPACE)
        value = self._value()[:size]
        self._set(value + bytes(size - len(value)))

    def sync(self, *, data_only: bool = False) -> None:
        self._base.sync(data_only=data_only)

    def allocate(self, offset: int, count: int, *, keep_size: bool = False) -> None:
        """Do nothing, since streams reserve no space."""

    def punch(self, offset: int, count: int) -> None:
        end = min(offset + count, len(self._value()))
        if offset < end:
            self.write(memoryview(bytes(end - offset)), offset)

    def ranges(self, offset: int, count: int, *, at_most: int = 1024) -> list[tuple[int, int]]:
        end = min(offset + count, len(self._value()))
        return [(offset, end - offset)] if offset < end else []

    def copy_from(self, other: Node, offset: int, to: int, count: int) -> int:
        buffer = memoryview(bytearray(min(count, LARGEST + 1)))
        done = other.read_into(buffer, offset)
        return self.write(buffer[:done], to)
