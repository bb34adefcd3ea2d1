"""The remedy where an image cannot be built: the published one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from quicksand.base.arch import Architecture
from quicksand.base.errors import DiskSpaceError, HostError, UnreachableError
from quicksand.base.remedies import Remedy, Words
from quicksand.base.tools import ToolError
from quicksand.disks.packages.names import PUBLISHED


@contextlib.contextmanager
def naming_published(*names: str, arch: Architecture | None) -> Iterator[None]:
    """Add to an error of a mirror, or of a program that builds or downloads, that the first
    published one of ``names`` can be installed instead. The names are those of the images built for
    each other, the requested one first; ``arch`` None is this host's."""
    try:
        yield
    except HostError as error:
        name = next((name for name in names if name in PUBLISHED), None)
        is_said = isinstance(error.advice, Words)
        if name is not None and not is_said and _is_of_building(error):
            error.hint = _install(name, arch, error.hint)
        raise


def _is_of_building(error: HostError) -> bool:
    is_full = isinstance(error, DiskSpaceError)
    return isinstance(error, ToolError | UnreachableError) and not is_full


def _install(name: str, arch: Architecture | None, hint: str) -> Words:
    call = f"`quicksand.install({name!r})`"
    remedy = Remedy("install", name=name)
    if arch not in (None, Architecture.host()):
        call = f"`quicksand.install({name!r}, arch={arch.debian!r})`"
        remedy = Remedy("install_for", name=name, arch=arch.debian)
    rest = f"; {hint}" if hint else ""
    return Words(Words(remedy, python=call), f" gets the published image instead{rest}")
