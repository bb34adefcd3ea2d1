"""The files of an image as records, after applying its layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quicksand.base.errors import ImageError

from quicksand_images.oci.tar import Kind, Member

WHITEOUT, OPAQUE, HOUSEKEEPING = ".wh.", ".wh..wh..opq", ".wh..wh."
"""Names in layers: ``.wh.NAME`` hides NAME of the layers below, the second one everything in its
directory; others that begin with the third are the notes of a storage driver (OCI image
specification, layer.md, "Whiteouts")."""

NAME_MAX = 255
"""Bytes of a name (Linux, ext4)."""

PATH_MAX = 3000
"""The most bytes of a path. Linux takes 4095; the rest is for the files' temporary directory."""

DEPTH_MAX = 200
"""Directories within each other."""

LINKS_MAX = 40
"""Symbolic links on the way to a file (Linux, MAXSYMLINKS)."""

TARGET_MAX = 4095
"""Bytes of a symbolic link (Linux, PATH_MAX without its end)."""

HARD_LINKS_MAX = 60_000
"""The most names of a file; ext4 allows 65000."""

XATTRS_MAX = 3 * 1024
"""Bytes of a file's xattrs with their names: ext4 has one block for them."""

ENTRIES_MAX = 500_000
"""The most members of all layers, and directories that only their names imply. The largest images
have 200,000; each takes half a kilobyte here."""

STEPS_MAX = 50_000_000
"""The most names that are looked up for one image. The largest images need a tenth; links through
thousands of names, and repeated whiteouts, would take hours."""

MAJOR_MAX, MINOR_MAX = 2**12 - 1, 2**16 - 1
"""The largest numbers of a device: Linux's (include/linux/kdev_t.h), and debugfs's."""


@dataclass(slots=True, eq=False)
class Node:
    """A record of a file. Its hard links share it."""

    kind: Kind
    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    target: str = ""
    device: tuple[int, int] = (0, 0)
    xattrs: Mapping[str, bytes] = field(default_factory=dict)
    content: Path | None = None
    """The file in which its content waits."""
    size: int = 0
    names: int = 0
    """The number of its names."""
    children: dict[str, Node] = field(default_factory=dict)
    """The entries of a directory."""
    fresh: set[str] = field(default_factory=set)
    """The names in a directory that the layer being applied has set."""

    @property
    def is_directory(self) -> bool:
        return self.kind is Kind.DIRECTORY


class Tree:
    """A root directory with records. A faulty member is an ImageError."""

    def __init__(self, discard: Callable[[Path], None] = lambda path: None) -> None:
        """``discard`` is called with a content that has lost its last name."""
        self.root = Node(Kind.DIRECTORY, names=1)
        self._discard = discard
        self._touched: list[Node] = []
        self._steps = 0
        self._entries = 0

    # --- layers

    def apply(self, member: Member, content: Path | None = None) -> None:
        """Apply a member of the present layer. The caller keeps ``content`` for it."""
        parts = split(member.name)
        *above, name = parts or [""]
        if any(part.startswith(HOUSEKEEPING) and part != OPAQUE for part in parts):
            self._drop(content)
            return
        if any(part.startswith(WHITEOUT) for part in above):
            raise ImageError(f"{_shown(member.name)} lies in a whiteout")
        if name.startswith(WHITEOUT):
            self._drop(content)
            self._hide(above, name, member.name)
        elif not name:
            self._set_root(member)
        else:
            self._put(self._directory(above, member.name), name, self._node(member, content))

    def count(self) -> None:
        """Count a member, or a directory that a name makes. Raises ImageError for too many."""
        self._entries += 1
        if self._entries > ENTRIES_MAX:
            raise ImageError(f"the layers are refused: they have more than {ENTRIES_MAX} files")

    def end_layer(self) -> None:
        """End the present layer: from now on its files belong to the layers below."""
        for node in self._touched:
            node.fresh.clear()
        self._touched.clear()

    def _hide(self, above: list[str], name: str, whole: str) -> None:
        directory = self.find(above)
        hidden = name.removeprefix(WHITEOUT)
        if name != OPAQUE and hidden in ("", ".", ".."):
            raise ImageError(f"the whiteout {_shown(whole)} names no file of its directory")
        if directory is None or not directory.is_directory:
            return
        for one in list(directory.children) if name == OPAQUE else [hidden]:
            self._remove_lower(directory, one)

    def _remove_lower(self, directory: Node, name: str) -> None:
        """Remove the layers' earlier entry of a name."""
        self._spend(1)
        node = directory.children.get(name)
        if node is None:
            return
        if node.is_directory:
            for inner in list(node.children):
                self._remove_lower(node, inner)
        if name not in directory.fresh and not node.children:
            self._remove(directory, name)

    def _set_root(self, member: Member) -> None:
        if member.kind is not Kind.DIRECTORY:
            raise ImageError(f"the root directory is {member.kind.value} in a layer")
        _describe(self.root, member)

    def _node(self, member: Member, content: Path | None) -> Node:
        if member.kind is Kind.LINK:
            return self._linked(member)
        node = Node(member.kind, content=content, size=member.size)
        _describe(node, member)
        if member.kind is Kind.SYMLINK:
            _require_target(member)
            node.target, node.mode = member.target, 0o777
        elif member.kind in (Kind.CHARACTER, Kind.BLOCK):
            major, minor = member.device
            if major > MAJOR_MAX or minor > MINOR_MAX:
                raise ImageError(f"{_shown(member.name)} is the impossible device {major}:{minor}")
            node.device = member.device
        return node

    def _linked(self, member: Member) -> Node:
        found = self.find(split(member.target), last=False)
        if found is None:
            raise ImageError(
                f"{_shown(member.name)} is a hard link to {_shown(member.target)}, which is not in "
                "the image"
            )
        if found.is_directory:
            raise ImageError(f"{_shown(member.name)} is a hard link to a directory")
        if found.names >= HARD_LINKS_MAX:
            raise ImageError(f"{_shown(member.target)} has more than {HARD_LINKS_MAX} names")
        return found

    def _put(self, directory: Node, name: str, node: Node) -> None:
        _require_part(name)  # even a symbolic link's target, which was not split yet
        old = directory.children.get(name)
        if old is not None and old.is_directory and node.is_directory:
            for part in ("mode", "uid", "gid", "mtime", "xattrs"):
                setattr(old, part, getattr(node, part))
        elif old is not node:
            node.names += 1  # first, since the replaced entry may hold the only other name
            if old is not None:
                self._remove(directory, name)
            directory.children[name] = node
        self._touch(directory, name)

    def _touch(self, directory: Node, name: str) -> None:
        if not directory.fresh:
            self._touched.append(directory)
        directory.fresh.add(name)

    def _remove(self, directory: Node, name: str) -> None:
        node = directory.children.pop(name)
        directory.fresh.discard(name)
        for inner in list(node.children):
            self._remove(node, inner)
        node.names -= 1
        if not node.names:
            self._drop(node.content)

    def _drop(self, content: Path | None) -> None:
        if content is not None:
            self._discard(content)

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > STEPS_MAX:
            raise ImageError("the layers are refused: their links and whiteouts take too long")

    # --- looking up

    def find(self, path: list[str] | str, *, last: bool = True) -> Node | None:
        """Return the record at a path, following links, which never lead out of the image; None if
        there is none. With ``last=False`` a link at the end is returned itself."""
        parts = split(path) if isinstance(path, str) else path
        stack = self._walk(parts, last=last, create=False, whole="/".join(parts))
        return stack[-1] if stack else None

    def _directory(self, parts: list[str], whole: str) -> Node:
        """Return the directory at a path, made with those above it if there is none."""
        stack = self._walk(parts, last=True, create=True, whole=whole)
        if not stack or not stack[-1].is_directory:
            raise ImageError(f"{_shown(whole)} lies below something that is no directory")
        return stack[-1]

    def _walk(self, parts: list[str], *, last: bool, create: bool, whole: str) -> list[Node] | None:
        stack, left, links = [self.root], list(reversed(parts)), 0
        while left:
            self._spend(1)
            part = left.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if len(stack) > 1:
                    stack.pop()
                continue
            if not stack[-1].is_directory:
                return None
            found = stack[-1].children.get(part)
            if found is None and create:
                self.count()
                found = Node(Kind.DIRECTORY)
                self._put(stack[-1], part, found)
            if found is None:
                return None
            if found.kind is Kind.SYMLINK and (left or last):
                links += 1
                if links > LINKS_MAX:
                    raise ImageError(f"{_shown(whole)} leads through too many links")
                if found.target.startswith("/"):
                    del stack[1:]
                left += reversed(found.target.split("/"))
                continue
            stack.append(found)
            if len(stack) > DEPTH_MAX:
                raise ImageError(f"{_shown(whole)} lies in more than {DEPTH_MAX} directories")
        return stack

    # --- what the builder adds

    def make_directory(self, path: str) -> Node:
        """Make a directory with those above it, or return the existing one."""
        return self._directory(split(path), path)

    def put_file(
        self, path: str, content: Path, *, size: int, mtime: int, mode: int = 0o644
    ) -> None:
        """Put a file of root's at a path, in place of an existing entry."""
        *above, name = split(path)
        node = Node(Kind.FILE, mode=mode, mtime=mtime, content=content, size=size)
        self._put(self._directory(above, path), name, node)

    def remove(self, path: str) -> None:
        """Remove the entry at a path, without following a link at its end."""
        *above, name = split(path)
        directory = self.find(above)
        if directory is not None and name in directory.children:
            self._remove(directory, name)

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Yield all paths with their records, each directory before its contents: "" for the root,
        otherwise "/etc/passwd"."""
        waiting = [("", self.root)]
        while waiting:
            path, node = waiting.pop()
            yield path, node
            inner = sorted(node.children.items(), reverse=True)
            waiting += [(f"{path}/{name}", child) for name, child in inner]


def split(path: str) -> list[str]:
    """Split a name of a layer into its parts. A slash at its beginning means nothing, as usual in
    layers. Raises ImageError for a name that leads out or that no file can have."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ImageError(f"the name {_shown(path)} leads out of its directory")
    if "\0" in path:
        raise ImageError(f"the name {_shown(path)} has a character that no name here can have")
    if len(path.encode("utf-8", "surrogateescape")) > PATH_MAX or len(parts) > DEPTH_MAX:
        raise ImageError(f"the name {_shown(path)} is longer or deeper than is possible here")
    if any(len(part.encode("utf-8", "surrogateescape")) > NAME_MAX for part in parts):
        raise ImageError(f"the name {_shown(path)} is longer than a name can be")
    return parts


def _require_part(name: str) -> None:
    is_path = name in ("", ".", "..") or any(character in name for character in "/\0")
    is_long = len(name.encode("utf-8", "surrogateescape")) > NAME_MAX
    if is_path or is_long or name.startswith(WHITEOUT):
        raise ImageError(f"{_shown(name)} cannot be the name of a file, and a link leads to it")


def _describe(node: Node, member: Member) -> None:
    node.mode, node.uid, node.gid, node.mtime = member.mode, member.uid, member.gid, member.mtime
    if member.kind in (Kind.FILE, Kind.DIRECTORY):
        node.xattrs = kept_xattrs(member)


def kept_xattrs(member: Member) -> dict[str, bytes]:
    """Return the xattrs of a member that an image keeps: a program's capabilities, and those of
    users. The others belong to a host (SELinux, overlay file systems). Raises ImageError if they do
    not fit into the file system."""
    kept = {
        name: value
        for name, value in member.xattrs.items()
        if name == "security.capability" or name.startswith("user.")
    }
    size = sum(
        len(name.encode("utf-8", "surrogateescape")) + len(v) + 32 for name, v in kept.items()
    )
    if size > XATTRS_MAX:
        raise ImageError(f"{_shown(member.name)} has more xattrs than the file system can hold")
    for name in kept:
        if len(name) > NAME_MAX or not name.isascii() or not name.isprintable() or '"' in name:
            raise ImageError(f"{_shown(member.name)} has an xattr with the name {_shown(name)}")
    return kept


def _require_target(member: Member) -> None:
    target = member.target.encode("utf-8", "surrogateescape")
    if not target or len(target) > TARGET_MAX or b"\0" in target:
        raise ImageError(f"{_shown(member.name)} is a symbolic link that leads nowhere")


def _shown(name: str) -> str:
    return repr(name if len(name) <= 200 else f"{name[:200]}…")
