"""A small mirror of Alpine packages, signed with a key of the test's own."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import random
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

KEY_NAME = "test-0123abcd.rsa.pub"


@dataclass(frozen=True)
class Apk:
    """A package that was made."""

    file: str
    data: bytes
    entry: str
    """Its paragraph in an index."""


class AlpineSigner:
    """A key for signing indexes."""

    def __init__(self, place: Path, bits: int = 2048) -> None:
        self._key = place / "key.pem"
        self._openssl("genrsa", "-out", str(self._key), str(bits))

    @property
    def public(self) -> str:
        return self._openssl("rsa", "-in", str(self._key), "-pubout").decode()

    def sign(self, data: bytes, kind: str = "RSA", name: str = KEY_NAME) -> bytes:
        """The gzip member with a signature of ``data`` that stands before it."""
        digest = {"RSA": "-sha1", "RSA256": "-sha256", "RSA512": "-sha512"}.get(kind, "-sha1")
        signature = self._openssl("dgst", digest, "-sign", str(self._key), stdin=data)
        # Stored, so that files with other signatures are as large.
        return packed({f".SIGN.{kind}.{name}": signature}, ends=False, level=0)

    def _openssl(self, *words: str, stdin: bytes = b"") -> bytes:
        return subprocess.run(
            ["openssl", *words], input=stdin, check=True, capture_output=True
        ).stdout


def packed(files: dict[str, bytes], *, ends: bool = True, level: int = 9) -> bytes:
    """A packed archive; without ``ends`` another part follows it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.mode = 0o755
            if name.endswith("/"):
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
                continue
            member.size = len(data)
            digest = hashlib.sha1(data, usedforsecurity=False).hexdigest()
            member.pax_headers = {"APK-TOOLS.checksum.SHA1": digest} if ends else {}
            archive.addfile(member, io.BytesIO(data))
        length = buffer.tell()
    data = buffer.getvalue()
    return gzip.compress(data if ends else data[:length], compresslevel=level, mtime=0)


def make_apk(
    name: str,
    version: str = "1.0-r0",
    *,
    depends: str = "",
    script: str = "",
    arch: str = "x86_64",
    size: int = 0,
    signer: AlpineSigner | None = None,
) -> Apk:
    """``size``: bytes that do not compress."""
    # apk wants each directory before what is in it.
    files = {
        "usr/": b"",
        "usr/share/": b"",
        f"usr/share/{name}.txt": f"{name} {version}\n".encode(),
    }
    if size:
        files["usr/share/large"] = random.Random(0).randbytes(size)
    content = packed(files)
    info = f"pkgname = {name}\npkgver = {version}\narch = {arch}\nsize = 20\npkgdesc = probe\n"
    info += "".join(f"depend = {word}\n" for word in depends.split())
    info += f"datahash = {hashlib.sha256(content).hexdigest()}\n"
    parts = {".PKGINFO": info.encode()}
    if script:
        parts[".post-install"] = f"#!/bin/sh\n{script}\n".encode()
    control = packed(parts, ends=False)
    digest = hashlib.sha1(control, usedforsecurity=False).digest()
    entry = f"C:Q1{base64.b64encode(digest).decode()}\nP:{name}\nV:{version}\nA:{arch}\n"
    signature = b"" if signer is None else signer.sign(control)
    entry += f"S:{len(signature + control + content)}\nI:20\nT:probe\nU:x\nL:MIT\no:{name}\nt:1\n"
    entry += f"D:{depends}\n" if depends else ""
    return Apk(f"{name}-{version}.apk", signature + control + content, entry)


@dataclass
class Entry:
    """A file of a package, or without ``source`` a directory."""

    name: str
    source: Path | None
    mode: int
    uid: int = 0
    gid: int = 0


def pack_apk(
    name: str,
    version: str,
    info: str,
    fields: dict[str, str],
    entries: list[Entry],
    scripts: dict[str, bytes],
    signer: AlpineSigner,
) -> Apk:
    """A package with these files. ``info`` is what its metadata say, ``fields`` are those of an
    index without its checksum and size."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=1, mtime=0) as packer,
        tarfile.open(fileobj=packer, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for entry in entries:
            _add(archive, entry)
    content = buffer.getvalue()
    info += f"datahash = {hashlib.sha256(content).hexdigest()}\n"
    control = packed({".PKGINFO": info.encode(), **scripts}, ends=False)
    digest = base64.b64encode(hashlib.sha1(control, usedforsecurity=False).digest()).decode()
    data = signer.sign(control) + control + content
    lines = {"C": f"Q1{digest}", "S": str(len(data)), **fields}
    text = "".join(f"{key}:{value}\n" for key, value in lines.items())
    return Apk(f"{name}-{version}.apk", data, text)


def _add(archive: tarfile.TarFile, entry: Entry) -> None:
    member = tarfile.TarInfo(entry.name)
    member.mode, member.uid, member.gid = entry.mode, entry.uid, entry.gid
    member.uname = member.gname = "root"
    if entry.source is None:
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
        return
    member.mtime = int(entry.source.lstat().st_mtime)
    link = entry.source.is_symlink()
    data = os.readlink(entry.source).encode() if link else entry.source.read_bytes()
    digest = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    member.pax_headers = {"APK-TOOLS.checksum.SHA1": digest}
    if link:
        member.type, member.linkname = tarfile.SYMTYPE, data.decode()
        archive.addfile(member)
    else:
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))


def make_alpine_mirror(
    place: Path, signer: AlpineSigner, apks: list[Apk], arch: str = "x86_64"
) -> None:
    """A repository with these packages in ``place``."""
    top = place / arch
    top.mkdir(parents=True, exist_ok=True)
    for apk in apks:
        (top / apk.file).write_bytes(apk.data)
    text = "\n".join(apk.entry for apk in apks) + "\n"
    index = packed({"DESCRIPTION": b"test", "APKINDEX": text.encode()})
    (top / "APKINDEX.tar.gz").write_bytes(signer.sign(index) + index)
