"""The facts that `info FILE` tells of a bundle, from its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quicksand.base.paths import expand, paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.saves.bundle.heads import BundleHead, Contents, read_contents
from quicksand.saves.bundle.manifest import BundleBase, BundledSandbox, BundleKind
from quicksand.saves.bundle.unpacked import find_unpacked
from quicksand.saves.resolving import left_out_of
from quicksand.saves.save_manifest import SaveManifest

from quicksand_tui.cli.output import print_json, print_table, show_age, show_size, told
from quicksand_tui.model.text import clean

RECORD = "/node.json"
"""The end of the names of the records of checkpoints in a bundle."""

DIGEST_SHOWN = 12


def tell_bundle(file: Path, *, as_json: bool) -> None:
    """Prints the contents of a bundle. Raises BundleError, ImageNotFound, PathError."""
    found = read_contents(expand(str(file)).absolute())
    if as_json:
        print_json(bundle_facts(found))
    else:
        print_table(("WHAT", "VALUE"), [(key, clean(value)) for key, value in _rows(found)])


def bundle_facts(found: Contents) -> dict[str, Any]:
    """Returns the facts of a bundle that is not unpacked."""
    head, store = found.head, ImageStore(paths().images)
    base = head.bundle.base if head.bundle is not None else head.image
    unpacked = find_unpacked(head, paths()) if head.kind is not BundleKind.TREE else None
    image = unpacked.image if unpacked is not None else ""
    return {
        "file": told(head.path),
        "size": found.size,
        "compressed": found.packed,
        "kind": head.kind.value,
        "name": head.name,
        "created": None if head.bundle is None else head.bundle.created,
        "full": head.bundle is None or head.bundle.is_full,
        "base": None if base is None else _base_facts(base, store),
        "machine": _machine(head),
        "asks": _asks(head),
        "layers": sum(name.endswith(".qcow2") for name in found.files),
        "checkpoints": sum(name.endswith(RECORD) for name in found.files),
        "files": [
            {"name": name, "size": size, "sha256": sha256 or None}
            for name, (size, sha256) in found.files.items()
        ],
        "unpacked": unpacked is not None,
        "image": image or None,
    }


def _base_facts(base: BundleBase, store: ImageStore) -> dict[str, Any]:
    return {
        "name": base.name,
        "version": base.version,
        "arch": base.arch,
        "digest": base.digest,
        "here": store.find_version(base.name, base.digest) is not None,
    }


def _machine(head: BundleHead) -> dict[str, Any]:
    """Returns the options of the machine that a save or sandbox has, or an image suggests."""
    config = None if head.bundle is None else head.bundle.config
    return dict(head.machine) if config is None else config.to_json()


def _asks(head: BundleHead) -> list[str]:
    """Returns the settings that it asks for and that a start leaves out without --trust."""
    config = None if head.bundle is None else head.bundle.config
    return [] if config is None else list(left_out_of(config))


def _rows(found: Contents) -> list[tuple[str, str]]:
    facts = bundle_facts(found)
    base, content = facts["base"], found.head.bundle and found.head.bundle.content
    rows = [
        ("kind", _kind(facts)),
        ("name", facts["name"]),
        ("size", show_size(facts["size"]) + (", compressed" if facts["compressed"] else "")),
    ]
    if facts["created"]:
        rows.append(("age", show_age(facts["created"])))
    if isinstance(content, SaveManifest) and content.note:
        rows.append(("note", content.note))
    if base is not None:
        what = "image" if facts["kind"] == BundleKind.IMAGE else "base"
        version = f" {base['version']}" if base["version"] else ""
        rows.append((what, f"{base['name']}{version}, {base['arch']}, {base['digest']}"))
    if facts["kind"] != BundleKind.IMAGE:
        rows.append(("base is", _where(facts)))
    if isinstance(content, BundledSandbox):
        rows.append(("checkpoints", str(facts["checkpoints"])))
    machine = {key: value for key, value in facts["machine"].items() if value not in (None, [])}
    rows += [(f"machine {key}", str(value)) for key, value in machine.items() if key != "image"]
    if facts["asks"]:
        rows.append(("left out", f"{'; '.join(facts['asks'])} (unless --trust)"))
    for file in facts["files"]:
        digest = (file["sha256"] or "no digest")[:DIGEST_SHOWN]
        rows.append((file["name"], f"{show_size(file['size'])}, {digest}"))
    unpacked = facts["image"] or ("yes" if facts["unpacked"] else "no, the first start does that")
    if facts["kind"] != BundleKind.TREE:
        rows.append(("unpacked here", unpacked))
    return rows


def _kind(facts: dict[str, Any]) -> str:
    if facts["kind"] == BundleKind.TREE:
        return "a sandbox with its checkpoints: `quicksand-tui import` takes it"
    return f"{facts['kind']}"


def _where(facts: dict[str, Any]) -> str:
    if facts["full"]:
        return "in the bundle"
    return "here" if facts["base"]["here"] else "not here, and not in the bundle"
