"""Small mirrors that tests make themselves: an apt repository signed with a key of its own, and a
package index, served from this host."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SUITE = "trixie"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and notes what was asked for."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@dataclass(frozen=True)
class Served:
    """A directory that is served."""

    url: str
    asked: list[str]
    """The paths that were asked for."""


@contextlib.contextmanager
def serve(place: Path) -> Iterator[Served]:
    """Serve the files below ``place``."""
    handler = functools.partial(_Quiet, directory=str(place))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield Served(f"http://127.0.0.1:{server.server_port}", server.asked)  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Signer:
    """A key for signing repositories."""

    def __init__(self, home: Path) -> None:
        self._home = home
        home.mkdir(mode=0o700)
        self._gpg("--quick-gen-key", "Test <test@example.org>", "ed25519", "sign", "never")

    @property
    def keys(self) -> str:
        return self._gpg("--armor", "--export")

    def sign(self, release: Path) -> None:
        """Write InRelease beside a Release file."""
        target = release.with_name("InRelease")
        target.unlink(missing_ok=True)
        self._gpg("--clearsign", "--output", str(target), str(release))

    def _gpg(self, *words: str) -> str:
        argv = ["gpg", "--homedir", str(self._home), "--batch", "--yes", "--passphrase", ""]
        argv += ["--pinentry-mode", "loopback", *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def close(self) -> None:
        """End the agent that gpg has started."""
        argv = ["gpgconf", "--homedir", str(self._home), "--kill", "gpg-agent"]
        subprocess.run(argv, check=True, capture_output=True)


def make_deb(
    place: Path, name: str, *, version: str = "1.0", depends: str = "", script: str = ""
) -> Path:
    """A package with one file, made by dpkg-deb; ``script`` is what configures it."""
    tree = place / f"tree-{name}"
    (tree / "DEBIAN").mkdir(parents=True)
    fields = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: m <m@x>\n"
    fields += f"Depends: {depends}\n" if depends else ""
    (tree / "DEBIAN" / "control").write_text(f"{fields}Description: a probe\n")
    if script:
        (tree / "DEBIAN" / "postinst").write_text(f"#!/bin/sh\nset -e\n{script}\n")
        (tree / "DEBIAN" / "postinst").chmod(0o755)
    (tree / "usr" / "share" / name).mkdir(parents=True)
    (tree / "usr" / "share" / name / "data").write_text(f"{name}\n" * 1000)
    path = place / f"{name}_{version}_all.deb"
    argv = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(path)]
    subprocess.run(argv, check=True, capture_output=True)
    return path


def make_repository(place: Path, signer: Signer, debs: list[Path]) -> None:
    """An apt repository in ``place``, for amd64 and arm64, with the three suites that a system
    has."""
    pool = place / "pool"
    pool.mkdir(parents=True)
    for deb in debs:
        (pool / deb.name).write_bytes(deb.read_bytes())
    for suite in (SUITE, f"{SUITE}-updates", f"{SUITE}-security"):
        lists = []
        for arch in ("amd64", "arm64"):
            path = place / "dists" / suite / "main" / f"binary-{arch}" / "Packages"
            path.parent.mkdir(parents=True)
            path.write_text("".join(map(_entry, debs)) if suite == SUITE else "")
            lists.append(path)
        top = place / "dists" / suite
        digests = "".join(
            f" {hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_size} "
            f"{path.relative_to(top)}\n"
            for path in lists
        )
        fields = f"Origin: Test\nSuite: {suite}\nCodename: {suite}\nComponents: main\n"
        fields += "Architectures: amd64 arm64\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n"
        (top / "Release").write_text(f"{fields}SHA256:\n{digests}")
        signer.sign(top / "Release")


def _entry(deb: Path) -> str:
    argv = ["dpkg-deb", "--field", str(deb)]
    fields = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    return (
        f"{fields.strip()}\nFilename: pool/{deb.name}\nSize: {deb.stat().st_size}\n"
        f"SHA256: {digest}\n\n"
    )


def make_wheel(place: Path, name: str, version: str, tag: str = "py3-none-any") -> Path:
    """A wheel with one module and a program of the package's name."""
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"def main():\n    print({tag!r})\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    record = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    return path


def make_index(place: Path, wheels: list[Path]) -> None:
    """A package index in ``place``, as plain pages (PEP 503)."""
    for wheel in wheels:
        project = place / wheel.name.split("-")[0]
        project.mkdir(parents=True, exist_ok=True)
        (project / wheel.name).write_bytes(wheel.read_bytes())
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        with (project / "index.html").open("a") as page:
            page.write(f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>\n')
