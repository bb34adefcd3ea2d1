"""Exports a save, an image, or a sandbox with all its checkpoints (layers, memory, records) as one
file: each file is opened once, read in order, and compared with its digest. The guest's memory
contains its secrets, including the agent's token."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from quicksand.base.arch import Architecture
from quicksand.base.errors import (
    BundleError,
    HistoryError,
    HostError,
    ImageError,
    PathError,
    QuicksandError,
    SaveError,
    StateError,
)
from quicksand.base.paths import Paths
from quicksand.base.progress import Progress
from quicksand.base.regular import NotAFileError, open_regular
from quicksand.base.remedies import Remedy, Words
from quicksand.base.threads import in_stoppable_thread, in_thread_to_the_end
from quicksand.disks.images.resolve import ImageResolver
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import SCHEMA, File, Node
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.saves.boot_disk import stack_of
from quicksand.saves.bundle.bases import FoundBase, describe, find_base
from quicksand.saves.bundle.manifest import (
    MANIFEST,
    MANIFEST_MAX,
    Bundle,
    BundleBase,
    BundledSandbox,
    BundleKind,
    Member,
    overlay_name,
    parse_json,
)
from quicksand.saves.bundle.receiving import (
    RECORDS_MAX,
    Crcs,
    check_digest,
    check_layer,
    dangers,
    stopping,
)
from quicksand.saves.bundle.streams import END, PIECE, Write, encode_header, open_target, padding
from quicksand.saves.save_manifest import MANIFEST as SAVE_MANIFEST
from quicksand.saves.save_manifest import Base, Save, SavedLayer, SaveManifest, overlay_paths
from quicksand.snapshots.history import History, history_of
from quicksand.snapshots.keeping import locked_history
from quicksand.snapshots.layers import read_seal


@dataclass(slots=True, kw_only=True)
class Outgoing:
    """A file that goes into a bundle."""

    name: str
    """Its name in the bundle."""
    path: Path | None = None
    data: bytes | None = None
    """Its content, if there is no ``path``."""
    sha256: str = ""
    """Its digest; "" until it is known."""
    size: int = -1
    """Bytes; -1 until they are known."""
    expected: File | None = None
    """A record with its checksums."""
    descriptor: int = field(default=-1, repr=False)

    def open(self, stack: ExitStack) -> None:
        """Open it without following links, so that it stays readable whatever happens to its name.
        Raises BundleError, HostError if too many files are open."""
        if self.data is not None:
            self.size, self.sha256 = len(self.data), hashlib.sha256(self.data).hexdigest()
            return
        assert self.path is not None
        try:
            self.descriptor = open_regular(self.path, os.O_NOFOLLOW)
        except NotAFileError as error:
            raise BundleError(f"{self.path} is not a regular file") from error
        except OSError as error:
            raise _cannot_open(self.path, error) from error
        stack.callback(os.close, self.descriptor)
        found = os.fstat(self.descriptor)
        if self.size not in (-1, found.st_size):
            raise BundleError(
                f"{self.path} is damaged: {found.st_size} bytes instead of {self.size}"
            )
        self.size = found.st_size

    def pieces(self) -> Iterator[bytes]:
        """Yield its content. Raises BundleError if it became shorter, PathError."""
        if self.data is not None:
            yield self.data
            return
        at = 0
        while at < self.size:
            try:
                data = os.pread(self.descriptor, min(PIECE, self.size - at), at)
            except OSError as error:
                raise PathError(f"cannot read {self.path}: {error.strerror}") from error
            if not data:
                raise BundleError(f"{self.path} became shorter while it was read")
            yield data
            at += len(data)

    @property
    def member(self) -> Member:
        return Member(name=self.name, size=self.size, sha256=self.sha256)


def _cannot_open(path: Path, error: OSError) -> Exception:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return HostError(
            "there are more files in the bundle than may be open at one time",
            hint="`ulimit -n 65536` allows more of them",
        )
    if error.errno == errno.ELOOP:
        return BundleError(f"{path} is a symbolic link, which is not exported")
    return BundleError(f"{path} cannot be read: {error.strerror}")


def open_all(files: Sequence[Outgoing], stack: ExitStack) -> None:
    """Open all files; ``stack`` closes them. Raises BundleError, HostError."""
    for file in files:
        file.open(stack)


def find_digests(files: Sequence[Outgoing], progress: Progress) -> None:
    """Compute missing digests. Raises BundleError for a file that differs from its record,
    PathError, and what ``progress`` raises."""
    unknown = [file for file in files if not file.sha256]
    total = sum(file.size for file in unknown)
    done = 0
    for file in unknown:
        digest = hashlib.sha256()
        crcs = None if file.expected is None else Crcs(file.expected)
        for data in file.pieces():
            digest.update(data)
            if crcs is not None:
                with _damage(file):
                    crcs.update(data)
            done += len(data)
            progress("checking", done, total)
        if crcs is not None:
            with _damage(file):
                crcs.check(file.size)
        file.sha256 = digest.hexdigest()


@contextlib.contextmanager
def _damage(file: Outgoing) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise BundleError(f"{file.path} is damaged: {error}") from error


def encode_manifest(bundle: Bundle) -> bytes:
    """Encode the manifest. Raises BundleError if no import would accept it."""
    data = bundle.encode()
    try:
        if len(data) > MANIFEST_MAX:
            raise ValueError(f"{len(bundle.files)} files are more than a bundle can have")
        if sum(file.size for file in bundle.files if file.name.endswith(".json")) > RECORDS_MAX:
            raise ValueError("the records of its checkpoints are more than a bundle can have")
        Bundle.from_json(parse_json(data))
    except ValueError as error:
        raise BundleError(f"{bundle.name!r} cannot be exported: {error}") from error
    return data


def write_bundle(
    bundle: Bundle, files: Sequence[Outgoing], write: Write, progress: Progress
) -> None:
    """Write a tar of the manifest and all files. Raises BundleError if a file has changed,
    PathError, and what ``write`` and ``progress`` raise."""
    manifest = encode_manifest(bundle)
    _write_member(MANIFEST, len(manifest), bundle, write, lambda: iter((manifest,)))
    total, done = bundle.size, 0

    def counted(file: Outgoing) -> Iterator[bytes]:
        nonlocal done
        digest = hashlib.sha256()
        for data in file.pieces():
            digest.update(data)
            yield data
            done += len(data)
            progress("writing", done, total)
        try:
            check_digest(file.member, digest.hexdigest())
        except ValueError as error:
            raise BundleError(f"{file.path or file.name}: {error}") from error

    for file in files:
        _write_member(file.name, file.size, bundle, write, lambda file=file: counted(file))  # type: ignore[misc]
    write(END)


def _write_member(
    name: str, size: int, bundle: Bundle, write: Write, pieces: Callable[[], Iterator[bytes]]
) -> None:
    write(encode_header(name, size, bundle.created))
    for data in pieces():
        write(data)
    if fill := padding(size):
        write(fill)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A bundle that was written."""

    kind: BundleKind
    name: str
    size: int
    """Bytes of the files in it."""
    base: str
    """The image below it."""
    full: bool
    checkpoints: int = 0
    notes: tuple[str, ...] = ()
    """Things that it lacks and that an import will need."""


def export_save(
    save: Save,
    target: Path | BinaryIO,
    paths: Paths,
    *,
    full: bool = False,
    compress: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write a save as a bundle, with ``full`` including the image below it. Equal saves give equal
    bytes. Blocks for I/O.

    Raises SaveError if the save is damaged or ``full`` lacks the image, BundleError for a layer
    that no import would accept, ImageError, HostError, and the errors of ``progress``; ``target``
    is then unchanged.
    """
    say = progress or (lambda stage, done, total: None)
    with planned_save(save, paths, full=full, progress=say) as plan:
        with open_target(target, compress=compress) as write:
            write_bundle(plan.bundle, plan.files, write, say)
        manifest = plan.manifest
        size, base = plan.bundle.size, plan.bundle.base
    trust = dangers(manifest.config, manifest.other_config)
    return Exported(
        kind=BundleKind.SAVE,
        name=save.name,
        size=size,
        base=str(base),
        full=full,
        notes=(f"importing it takes --trust: the bundle {trust}",) if trust else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSave:
    """A save that is about to leave this host. Its files are open."""

    bundle: Bundle
    manifest: SaveManifest
    files: Sequence[Outgoing]


@contextlib.contextmanager
def planned_save(
    save: Save, paths: Paths, *, full: bool | None, progress: Progress
) -> Iterator[PlannedSave]:
    """Open the files of a save, compute the digests that are not known, and describe it as a
    bundle. ``full``: with the image below it; None means if that is here. Raises as
    `export_save`."""
    with ExitStack() as stack:
        stack_of_saves = stack_of(save, paths)
        layers = [file for lower in stack_of_saves for file in _layers(lower)]
        for number, file in enumerate(layers):
            file.name = overlay_name(number)
        open_all(layers, stack)
        find_digests(layers, progress)
        found = _find_base(stack_of_saves[0], paths)
        is_full = bool(found.files) if full is None else full
        base_files = require_files(found, save.name) if is_full else []
        open_all(base_files, stack)
        files = [*layers, *base_files]
        manifest = _complete(save, layers, found.base)
        bundle = Bundle(
            name=save.name,
            created=manifest.created,
            content=manifest,
            base=found.base,
            files=tuple(file.member for file in files),
        )
        yield PlannedSave(bundle=bundle, manifest=manifest, files=files)


def export_image(
    name: str,
    target: Path | BinaryIO,
    paths: Paths,
    *,
    compress: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write an image as a bundle; equal images give equal bytes. Blocks for I/O. Raises as
    `export_save`."""
    say = progress or (lambda stage, done, total: None)
    resolver = ImageResolver(paths)
    stored = resolver.store.get(name, Architecture.host())
    if stored is not None and stored.errors:
        raise ImageError(f"the image {name!r} is damaged: {'; '.join(stored.errors)}")
    found = describe(stored) if stored else find_base(resolver, name, "", Architecture.host())
    created = found.base.about.get("created")
    with ExitStack() as stack:
        files = require_files(found, name)
        open_all(files, stack)
        find_digests(files, say)
        bundle = Bundle(
            name=found.base.name,
            created=float(created) if isinstance(created, int | float) else 0.0,
            content=None,
            base=found.base,
            files=tuple(file.member for file in files),
        )
        with open_target(target, compress=compress) as write:
            write_bundle(bundle, files, write, say)
    return Exported(
        kind=BundleKind.IMAGE, name=bundle.name, size=bundle.size, base=str(found.base), full=True
    )


def _layers(save: Save) -> list[Outgoing]:
    """List the layers of a save. Raises SaveError, BundleError for one that no import accepts."""
    manifest = save.require()
    files = []
    for number, path in enumerate(overlay_paths(save.root, manifest)):
        check_layer(path, str(path), snapshots=True)
        file = Outgoing(name=path.name, path=path)
        if manifest.layers is not None:
            known = manifest.layers[number]
            file.size, file.sha256 = known.size, known.sha256
        files.append(file)
    return files


def _find_base(lowest: Save, paths: Paths) -> FoundBase:
    manifest = lowest.require()
    known = manifest.base or Base(name=manifest.config.image)
    arch = Architecture.parse(manifest.arch)
    try:
        found = find_base(ImageResolver(paths), known.name, known.digest, arch)
    except QuicksandError as error:
        raise SaveError(
            Words(f"the image {known} below the save cannot be determined: ", error.words),
            hint=error.advice,
        ) from error
    if not found.files:
        return replace(found, base=replace(found.base, version=known.version))
    return found


def require_files(found: FoundBase, name: str) -> list[Outgoing]:
    """List the files of an image for a full bundle. Raises SaveError if they are not here."""
    if not found.files:
        raise SaveError(
            f"{name!r} needs the image {found.base}, which is not here",
            hint=Words(
                "export it without ",
                Words("--full", python="full=True"),
                ", or where that image is",
            ),
        )
    return [
        Outgoing(name=name, path=path, size=member.size, sha256=member.sha256)
        for name, (path, member) in found.files.items()
    ]


def _complete(save: Save, layers: list[Outgoing], base: BundleBase) -> SaveManifest:
    """Return the manifest with the fields that published packages leave out, so that an import can
    find the image and check that the save is whole."""
    manifest = replace(
        save.require(),
        config=save.require().config.without_host(image=base.name),
        arch=base.arch,
        base=Base(name=base.name, version=base.version, digest=base.digest),
    )
    if manifest.id:
        return manifest
    known = tuple(
        SavedLayer(id=_name(f"{number} {file.sha256}"), size=file.size, sha256=file.sha256)
        for number, file in enumerate(layers)
    )
    return replace(
        manifest,
        id=_name(" ".join(layer.id for layer in known)),
        created=float(int((save.root / SAVE_MANIFEST).stat().st_mtime)),
        layers=known,
    )


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


NOTE_RUNNING = "it runs: the bundle has its checkpoints, and not what came after the last one"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledTree:
    """The parts of a sandbox that go into a bundle."""

    sandbox: BundledSandbox
    nodes: tuple[Node, ...]
    """The checkpoints as the bundle has them, the oldest first."""


def node_files(node: Node) -> Iterator[tuple[str, File]]:
    """Yield the files that belong to one checkpoint only, with their names in a bundle."""
    for name, file in node.own_files:
        yield f"checkpoints/{node.id}/{name}", file


def record_name(node_id: str) -> str:
    """Return the name in a bundle of a checkpoint's record."""
    return f"checkpoints/{node_id}/node.json"


def memory_files(nodes: Sequence[Node]) -> dict[str, File]:
    """Return the files of guest memory, which checkpoints share, by their names in a bundle."""
    found = {f"memory/{file.name}": file for node in nodes for file in node.files}
    return dict(sorted(found.items()))


def layer_files(nodes: Sequence[Node], layers: Sequence[str]) -> list[str]:
    """Return the ids of the frozen layers of checkpoints and of the present disk."""
    return sorted({*layers, *(name for node in nodes for name in node.layers)})


def sealed_layers(nodes: Sequence[Node]) -> set[str]:
    """Return the ids of the layers that have checksums: those of checkpoints."""
    return {name for node in nodes for name in node.layers}


async def export_tree(
    registry: Registry,
    record: Record,
    target: Path | BinaryIO,
    *,
    full: bool = False,
    compress: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write a sandbox as a bundle: its checkpoints and, if it is stopped, its present disk.

    A running sandbox keeps running; a stopped one cannot be started meanwhile. Raises HistoryError
    for a damaged checkpoint, StateError, SaveError, BundleError, ImageError, HostError; ``target``
    is then unchanged.
    """
    entry = registry.inspect(record.id)
    live = entry is not None and entry.is_live
    history = history_of(registry, record.id)
    with ExitStack() as stack:
        if not live:
            stack.callback(os.close, registry.lock(record.id))
        async with locked_history(history):
            tree, files = await in_thread_to_the_end(
                lambda: _open_tree(history, record, present=not live, stack=stack)
            )

        def write(stop: Callable[[], None]) -> Exported:
            say = stopping(progress, stop)
            return _write(registry, record, tree, files, stack, target, full, compress, say)

        return await in_stoppable_thread(write)


def _open_tree(
    history: History, record: Record, *, present: bool, stack: ExitStack
) -> tuple[BundledTree, list[Outgoing]]:
    """Open all files, so that it no longer matters what happens to their names."""
    tree = _look(history, record, present=present)
    files = _list_files(history.place, tree)
    open_all(files, stack)
    return tree, files


def _look(history: History, record: Record, *, present: bool) -> BundledTree:
    if broken := history.broken():
        id_, why = next(iter(broken.items()))
        raise HistoryError(
            f"the checkpoint {id_} is damaged: {why}",
            hint=Words(Remedy("remove_checkpoint", name=record.name, id=id_), " gives it up"),
        )
    nodes = tuple(_for_export(history, node, record) for node in history.nodes())
    head = history.head() if history.place.head.exists() else None
    if not nodes and (head is None or not present):
        raise StateError(
            f"the sandbox {record.name!r} has no checkpoints",
            hint=Words(
                Remedy("checkpoint", name=record.name),
                " takes one; stopped, its disk can be exported without any",
            ),
        )
    stands_on = None if head is None else history.find_visible(head.node)
    if stands_on not in [node.id for node in nodes]:
        stands_on = None  # that checkpoint was removed
    sandbox = BundledSandbox(id=record.id, config=record.config, node=stands_on)
    if present and head is not None:
        if head.previous is not None:
            raise StateError(
                f"the last start of {record.name!r} did not end well",
                hint=Words(Remedy("start", name=record.name), " and stop it, then export it"),
            )
        sandbox = replace(sandbox, layers=head.layers, top=head.top)
    return BundledTree(sandbox=sandbox, nodes=nodes)


def _for_export(history: History, node: Node, record: Record) -> Node:
    """Return the record for a bundle: without hidden parents, and naming the owner of its memory,
    which a record leaves out if it is the sandbox itself."""
    parent = history.find_visible(node.parent)
    return replace(node, parent=parent, owner=node.owner or record.id)


def _list_files(place: SandboxDir, tree: BundledTree) -> list[Outgoing]:
    """List all files in the order that an import expects: records first."""
    nodes, sandbox = tree.nodes, tree.sandbox
    files: list[Outgoing] = []
    for node in nodes:
        files.append(Outgoing(name=record_name(node.id), data=b""))  # set once the base is known
    sealed = sealed_layers(nodes)
    layers = layer_files(nodes, sandbox.layers)
    seals = {name: read_seal(place, name) for name in layers if name in sealed}
    for name, seal in seals.items():
        plain = {"schema_version": SCHEMA, "file": seal.to_json()}
        files.append(Outgoing(name=f"layers/{name}.json", data=_encode(plain)))
    for name in [*layers, *([sandbox.top] if sandbox.top is not None else [])]:
        path = place.layer(name)
        check_layer(path, str(path))
        files.append(Outgoing(name=f"layers/{path.name}", path=path, expected=seals.get(name)))
    for name, file in memory_files(nodes).items():
        files.append(
            Outgoing(name=name, path=place.memory / file.name, size=file.size, expected=file)
        )
    for node in nodes:
        for name, file in node_files(node):
            path = place.root / name
            files.append(Outgoing(name=name, path=path, size=file.size, expected=file))
    return files


def _write(
    registry: Registry,
    record: Record,
    tree: BundledTree,
    files: list[Outgoing],
    stack: ExitStack,
    target: Path | BinaryIO,
    full: bool,
    compress: bool,
    say: Progress,
) -> Exported:
    found = _find_base_of_tree(registry, record)
    nodes = tuple(_on_base(node, found) for node in tree.nodes)
    for node, file in zip(nodes, files, strict=False):
        file.data = _encode(node.to_json())
        file.open(stack)
    base_files = require_files(found, record.name) if full else []
    open_all(base_files, stack)
    find_digests(files, say)
    files = [*files, *base_files]
    config = tree.sandbox.config.without_host(image=found.base.name)
    bundle = Bundle(
        name=record.name,
        created=max((node.created for node in nodes), default=record.created),
        content=replace(tree.sandbox, config=config),
        base=found.base,
        files=tuple(file.member for file in files),
    )
    with open_target(target, compress=compress) as write:
        write_bundle(bundle, files, write, say)
    return Exported(
        kind=BundleKind.TREE,
        name=record.name,
        size=bundle.size,
        base=str(found.base),
        full=full,
        checkpoints=len(nodes),
        notes=tuple(_notes(tree, config)),
    )


def _notes(tree: BundledTree, config: SandboxConfig) -> Iterator[str]:
    if tree.sandbox.top is None:
        yield NOTE_RUNNING
    if tree.nodes:
        yield "it holds the guest's memory, and with it every secret of the programs there"
    if danger := dangers(config):
        yield f"importing it takes --trust: the bundle {danger}"


def _find_base_of_tree(registry: Registry, record: Record) -> FoundBase:
    arch = record.config.arch or Architecture.host()
    resolver = ImageResolver(registry.paths)
    return find_base(resolver, record.config.image, record.image_digest, arch)


def _on_base(node: Node, found: FoundBase) -> Node:
    """Add the image's digest to a checkpoint that lacks it, because its image is not in the
    store."""
    if node.shape.get("image"):
        return node
    return replace(node, shape={**node.shape, "image": found.base.digest})


def _encode(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


def start_at(sandbox: BundledSandbox, nodes: Sequence[Node]) -> Node:
    """Return the checkpoint to start at: the one that the sandbox stood on, else the last."""
    return next((node for node in nodes if node.id == sandbox.node), nodes[-1])
