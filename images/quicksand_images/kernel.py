"""Makes an initrd with modules from a distribution's kernel package."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path

from quicksand.base.errors import ImageError
from quicksand.disks.images.boot_files import CpioEntry
from quicksand_disks import zstd


def initrd_entries(modules: Path, wanted: Iterable[str]) -> list[CpioEntry]:
    """List the entries of an initrd with the modules ``wanted`` of the tree ``modules``,
    uncompressed, and with ``/quicksand/modules``, which lists them for the agent in the order of
    dependencies.

    Modules that are built into the kernel are left out. Raises ImageError for an unknown one.
    """
    files = {_plain(path): path for path in sorted(modules.rglob("*.ko*"))}
    built_in = {_plain(Path(line)) for line in _lines(modules / "modules.builtin")}
    ordered: dict[str, bytes] = {}
    for name in wanted:
        _add_module(name.replace("-", "_"), files, built_in, ordered)
    listed = "".join(f"/quicksand/ko/{name}.ko\n" for name in ordered)
    return [
        # The kernel opens this console for the first process.
        CpioEntry(name="dev", mode=0o040755),
        CpioEntry(name="dev/console", mode=0o020600, device=(5, 1)),
        CpioEntry(name="quicksand", mode=0o040700),
        CpioEntry(name="quicksand/ko", mode=0o040700),
        *(
            CpioEntry(name=f"quicksand/ko/{name}.ko", mode=0o100600, data=data)
            for name, data in ordered.items()
        ),
        CpioEntry(name="quicksand/modules", mode=0o100600, data=listed.encode()),
    ]


def _add_module(
    name: str, files: Mapping[str, Path], built_in: set[str], ordered: dict[str, bytes]
) -> None:
    if name in ordered or name in built_in:
        return
    if name not in files:
        raise ImageError(f"the kernel has no module {name!r}")
    data = read_module(files[name])
    for needed in module_dependencies(data):
        _add_module(needed, files, built_in, ordered)
    ordered[name] = data


def read_module(path: Path) -> bytes:
    """Read a .ko, .ko.xz, .ko.gz or .ko.zst file, decompressed. Raises OSError, LZMAError,
    ValueError."""
    data = path.read_bytes()
    match path.suffix:
        case ".xz":
            return lzma.decompress(data)
        case ".gz":
            return gzip.decompress(data)
        case ".zst":
            return b"".join(zstd.unpack(iter([data])))
        case _:
            return data


def module_dependencies(module: bytes) -> list[str]:
    """Return the names in ``depends=`` of a module's section .modinfo (NUL-terminated texts)."""
    start = module.find(b"\0depends=")
    if start < 0:
        return []
    text = module[start + 9 : module.index(b"\0", start + 9)].decode("ascii", "replace")
    return [name.replace("-", "_") for name in text.split(",") if name]


def _plain(path: Path) -> str:
    return path.name.split(".ko", 1)[0].replace("-", "_")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
