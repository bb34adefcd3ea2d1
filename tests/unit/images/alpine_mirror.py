"""A small mirror of Alpine packages, signed with a key of the test's own."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
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

    def __init__(self, place: Path) -> None:
        self._key = place / "key.pem"
        self._openssl("genrsa", "-out", str(self._key), "2048")

    @property
    def public(self) -> str:
        return self._openssl("rsa", "-in", str(self._key), "-pubout").decode()

    def sign(self, data: bytes) -> bytes:
        """The gzip member with a signature of ``data`` that stands before it."""
        signature = self._openssl("dgst", "-sha1", "-sign", str(self._key), stdin=data)
        return packed({f".SIGN.RSA.{KEY_NAME}": signature}, ends=False)

    def _openssl(self, *words: str, stdin: bytes = b"") -> bytes:
        return subprocess.run(
            ["openssl", *words], input=stdin, check=True, capture_output=True
        ).stdout


def packed(files: dict[str, bytes], *, ends: bool = True) -> bytes:
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
    return gzip.compress(data if ends else data[:length], mtime=0)


def make_apk(
    name: str,
    version: str = "1.0-r0",
    *,
    depends: str = "",
    script: str = "",
    arch: str = "x86_64",
    size: int = 0,
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
    entry += f"S:{len(control + content)}\nI:20\nT:probe\nU:x\nL:MIT\no:{name}\nt:1\n"
    entry += f"D:{depends}\n" if depends else ""
    return Apk(f"{name}-{version}.apk", control + content, entry)


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
