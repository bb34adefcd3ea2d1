"""Packages as Alpine's mirrors have them, made of what is installed in the published image: its
files, its scripts, and what its database says of them. A mirror of them, too."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from quicksand.qemu.binaries import QemuBinaries, find_binaries
from quicksand_images.recipe import find_recipe

from tests.unit.images.alpine_mirror import (
    AlpineSigner,
    Apk,
    Entry,
    make_alpine_mirror,
    make_apk,
    pack_apk,
)
from tests.unit.images.mirrors import serve

PACKAGES = ("ca-certificates", "curl", "kmod", "sudo")
"""Those of our recipe that the published image has, besides the basic ones."""

_INFO = {"D": "depend", "p": "provides", "i": "install_if", "r": "replaces"}


@dataclass
class Installed:
    """A package in the database."""

    fields: dict[str, str] = field(default_factory=dict)
    files: list[Entry] = field(default_factory=list)


@contextlib.contextmanager
def published_mirror(image: Path, place: Path, arch: str = "x86_64") -> Iterator[str]:
    """Serve the packages of an image's disk, and `probe`; yield our recipe for Alpine, with this
    mirror, its key, and fewer packages. ``place`` is a new directory."""
    place.mkdir()
    signer = AlpineSigner(place)
    apks = published_apks(find_binaries(), image, place / "work", signer)
    shutil.rmtree(place / "work")
    apks += [
        make_apk("probe", depends="below", signer=signer, arch=arch),
        make_apk("below", signer=signer, arch=arch),
    ]
    make_alpine_mirror(place / "served" / "v3.23" / "main", signer, apks, arch)
    with serve(place / "served") as served:
        text = find_recipe("alpine").read_text()
        for pattern, other in (
            (r'^mirror = ".*?"$', f'mirror = "{served.url}"'),
            (r"^components = \[.*?\]$", 'components = ["main"]'),
            (r'^keys = """.*?"""$', f'keys = """\n{signer.public}"""'),
            (r"    # As in the default image\..*?^\]$", f"{str(list(PACKAGES))[1:-1]}]"),
        ):
            form = re.compile(pattern, re.MULTILINE | re.DOTALL)
            (found,) = form.finditer(text)
            text = text[: found.start()] + other + text[found.end() :]
        yield text


def published_apks(
    binaries: QemuBinaries, image: Path, place: Path, signer: AlpineSigner
) -> list[Apk]:
    """The packages of an image's disk; ``place`` is a new directory to work in."""
    place.mkdir()
    raw, tree = place / "disk.raw", place / "tree"
    tree.mkdir()
    argv = [str(binaries.img), "convert", "-O", "raw", str(image), str(raw)]
    subprocess.run(argv, env={**os.environ, **binaries.env}, check=True)
    debugfs = shutil.which("debugfs", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert debugfs is not None, "debugfs is needed: install e2fsprogs"
    argv = [debugfs, "-R", f"rdump / {tree}", str(raw)]
    subprocess.run(argv, check=True, capture_output=True)
    raw.unlink()
    for name in ("passwd", "shadow", "group"):  # as they were before that image got a user
        path = tree / "etc" / name
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.startswith("quicksand:")))
    database = tree / "lib" / "apk" / "db"
    triggers = dict(line.split(" ", 1) for line in (database / "triggers").read_text().splitlines())
    scripts: dict[str, dict[str, bytes]] = {}
    with tarfile.open(database / "scripts.tar.gz") as archive:
        for member in archive:
            name, kind = re.sub(r"\.X1[0-9a-f]+\.", " .", member.name).split(" ")
            content = archive.extractfile(member)
            assert content is not None
            scripts.setdefault(name, {})[kind] = content.read()
    return [
        _pack(found, triggers, scripts, signer)
        for found in _installed((database / "installed").read_text(), tree)
    ]


def _installed(text: str, tree: Path) -> Iterator[Installed]:
    for paragraph in text.strip().split("\n\n"):
        found, directory = Installed(), ""
        for line in paragraph.splitlines():
            key, _, value = line.partition(":")
            if key == "F":
                directory = value
                if directory:
                    found.files.append(Entry(directory, None, mode=0o755))
            elif key == "R":
                path = tree / directory / value
                found.files.append(Entry(f"{directory}/{value}".lstrip("/"), path, mode=0o644))
            elif key in "Ma":
                uid, gid, mode = value.split(":")[:3]
                last = found.files[-1]
                last.uid, last.gid, last.mode = int(uid), int(gid), int(mode, 8)
            elif key != "Z":
                found.fields[key] = value
        yield found


def _pack(
    found: Installed,
    triggers: dict[str, str],
    scripts: dict[str, dict[str, bytes]],
    signer: AlpineSigner,
) -> Apk:
    fields = found.fields
    name, version = fields["P"], fields["V"]
    info = f"pkgname = {name}\npkgver = {version}\narch = {fields['A']}\nsize = {fields['I']}\n"
    info += f"pkgdesc = {fields['T']}\nurl = {fields['U']}\nlicense = {fields['L']}\n"
    info += f"origin = {fields['o']}\nbuilddate = {fields['t']}\n"
    for key, label in _INFO.items():
        info += "".join(f"{label} = {word}\n" for word in fields.get(key, "").split())
    if "k" in fields:
        info += f"provider_priority = {fields['k']}\n"
    if fields["C"] in triggers:
        info += f"triggers = {triggers[fields['C']]}\n"
    kept = {key: value for key, value in fields.items() if key not in "CS"}
    return pack_apk(
        name, version, info, kept, found.files, scripts.get(f"{name}-{version}", {}), signer
    )
