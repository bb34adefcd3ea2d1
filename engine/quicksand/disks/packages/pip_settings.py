"""The package index that pip and uv use on this host, from the environment and pip's configuration
files (pip documentation, "Configuration")."""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from quicksand.base.errors import ConfigError, PathError
from quicksand.base.paths import home
from quicksand.base.regular import read_file
from quicksand.disks.packages.indexes import is_allowed, shown

PUBLIC_INDEX = "https://pypi.org/simple/"
VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
SECTIONS = ("global", "install")
"""Sections of pip's configuration that count for an installation; the last wins."""


def index_url(environ: Mapping[str, str] = os.environ) -> str:
    """Return the address of the package index. Raises ConfigError for one that is not fit."""
    url = _from_environment(environ) or _from_files(environ, "index-url") or PUBLIC_INDEX
    if not is_allowed(url):
        raise ConfigError(
            f"the package index is {shown(url)}, and nothing is fetched from there: anybody on the "
            "way could change it",
            hint="set PIP_INDEX_URL to an address with https",
        )
    return url


def certificates(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Files with further certificates that pip is configured to trust."""
    found = _from_files(environ, "cert")
    return [found] if found and Path(found).is_file() else []


def _from_environment(environ: Mapping[str, str]) -> str:
    for name in VARIABLES:
        # uv lets an index have a name in front ("work=https://…"), so only before the scheme.
        value = environ.get(name, "").strip()
        before, _, rest = value.partition("=")
        if value:
            return rest if rest and "/" not in before else value
    return ""


def _from_files(environ: Mapping[str, str], key: str) -> str:
    found = ""
    for path in _files(environ):
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(read_file(path).decode())
        except (OSError, UnicodeError, configparser.Error):
            continue  # pip itself reports the error in it
        for section in SECTIONS:
            found = parser.get(section, key, fallback=found)
    return found.strip()


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    """pip's files in the order in which it reads them; the last wins."""
    only = environ.get("PIP_CONFIG_FILE", "")
    if only == os.devnull:
        return
    for base in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"):
        yield Path(base, "pip", "pip.conf")
    yield Path("/etc/pip.conf")
    try:
        own = home()
    except PathError:
        own = None
    if own is not None:
        yield own / ".pip" / "pip.conf"
        yield Path(environ.get("XDG_CONFIG_HOME") or own / ".config", "pip", "pip.conf")
    yield Path(sys.prefix, "pip.conf")
    if only:
        yield Path(only)
