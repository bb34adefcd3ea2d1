"""Finds the mirrors of packages and the keys that sign them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import HostError
from quicksand.base.tools import run_tool
from quicksand.qemu import debs
from quicksand.records.config import GATEWAY_IP

from quicksand_images.recipe import System

KEYRINGS = Path("/usr/share/keyrings")
SOURCES = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d"))

_SETTING = re.compile(r"Acquire::(?:https?::|Retries|ForceIPv|Check-Date|Check-Valid-Until)")
"""apt settings to take over. None of them makes apt accept a missing or wrong signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrors:
    """The mirrors to use for a build."""

    main: str
    security: str


def find_mirrors(system: System) -> Mirrors:
    """Return the mirrors configured on a host of the same distribution, or else the recipe's.
    Raises OSError."""
    mirrors = Mirrors(main=system.mirror, security=system.security_mirror)
    release = _os_release()
    codename = release.get("VERSION_CODENAME")
    if system.keys or release.get("ID") != system.distribution or not codename:
        return mirrors
    found: dict[str, str] = {}
    for file in _sources_files():
        found |= parse_sources(file.read_text(encoding="utf-8", errors="replace"))
    return Mirrors(
        main=found.get(codename, mirrors.main),
        security=found.get(f"{codename}-security", mirrors.security),
    )


def parse_sources(text: str) -> dict[str, str]:
    """Return the mirrors by suite in a sources.list(5), in the one-line or the deb822 format."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split("]", 1)[-1].split() if "[" in line else line.split()[1:]
        if line.startswith("deb ") and len(words) >= 2:
            found.setdefault(words[1].rstrip("/"), words[0].rstrip("/"))
    for paragraph in text.split("\n\n"):
        fields = {
            key.strip().lower(): value.split()
            for key, _, value in (line.partition(":") for line in paragraph.splitlines())
            if not key.startswith("#")
        }
        if "deb" in fields.get("types", []) and fields.get("uris"):
            for suite in fields.get("suites", []):
                found.setdefault(suite.rstrip("/"), fields["uris"][0].rstrip("/"))
    return {suite: uri for suite, uri in found.items() if uri.startswith(("http://", "https://"))}


def _sources_files() -> list[Path]:
    single, directory = SOURCES
    files = [single, *sorted(directory.glob("*.list")), *sorted(directory.glob("*.sources"))]
    return [file for file in files if file.is_file() and os.access(file, os.R_OK)]


def _os_release() -> dict[str, str]:
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value.strip('"') for key, _, value in pairs}


def source_lines(system: System, keyring: Path, mirrors: Mirrors) -> list[str]:
    """Return the lines of a sources.list(5) for ``system``."""
    signed = f"[signed-by={keyring}]"
    components = " ".join(system.components)
    return [
        f"deb {signed} {mirrors.main} {system.suite} {components}",
        f"deb {signed} {mirrors.main} {system.suite}-updates {components}",
        f"deb {signed} {mirrors.security} {system.suite}-security {components}",
    ]


async def reaching_mirrors() -> str:
    """Return the host's settings for reaching mirrors as lines for an apt.conf(5): proxies,
    certificates, retries. Raises ToolError."""
    text = await run_tool(["apt-config", "dump"])
    return "".join(f"{line}\n" for line in text.splitlines() if _SETTING.match(line))


async def find_keyring(system: System, place: Path) -> Path:
    """Return the file with the keys of ``system``: those of the recipe, the host's, or one unpacked
    in ``place``. Raises ToolError, HostError."""
    if system.keys:
        own = place / "keys.asc"
        own.write_text(system.keys, encoding="utf-8")
        own.chmod(0o644)
        return own
    package = system.keyring
    if (found := KEYRINGS / f"{package}.gpg").is_file():
        return found
    root = place / "keyring"
    root.mkdir()
    await debs.unpack([package], root)
    files = sorted((root / "usr" / "share" / "keyrings").glob(f"{package}.*"))
    if not files:
        raise HostError(f"the package {package} holds no keys")
    return files[0]


def proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the host's variables for proxies, without names and passwords: the base, and files
    that the steps download, may be anybody's."""
    names = ("http_proxy", "https_proxy", "no_proxy")
    return {
        name: _without_password(environ[name])
        for one in names
        for name in (one, one.upper())
        if environ.get(name)
    }


def _without_password(address: str) -> str:
    # An @ that is not escaped belongs to the password, as does any :// that is not a scheme's.
    return re.sub(r"\A([A-Za-z][A-Za-z0-9+.-]*://)?.*@", r"\1", address, flags=re.DOTALL)


_LOOPBACK = re.compile(r"(?<=//)(?:localhost|127\.[0-9.]+|\[::1\])(?=[:/\"]|$)")


def from_inside(address: str) -> str:
    """Return a sandbox's name for an address of this host's: a mirror or a proxy may be on this
    host itself."""
    return _LOOPBACK.sub(GATEWAY_IP, address)
