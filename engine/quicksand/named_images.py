"""Sandbox classes with a fixed image; all other options are those of `Sandbox`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from quicksand.sandbox import Sandbox

if TYPE_CHECKING:
    from quicksand.records.params import SandboxOptions


class DebianSandbox(Sandbox):
    """A sandbox with the default image."""

    def __init__(self, **options: Unpack[SandboxOptions]) -> None:
        super().__init__(image="debian", **options)


class UbuntuSandbox(Sandbox):
    """A sandbox with the image "ubuntu"."""

    def __init__(self, **options: Unpack[SandboxOptions]) -> None:
        super().__init__(image="ubuntu", **options)


class AlpineSandbox(Sandbox):
    """A sandbox with the image "alpine"."""

    def __init__(self, **options: Unpack[SandboxOptions]) -> None:
        super().__init__(image="alpine", **options)


class DebianDesktopSandbox(Sandbox):
    """A sandbox with the image "debian-desktop", and a display."""

    def __init__(self, **options: Unpack[SandboxOptions]) -> None:
        super().__init__(image="debian-desktop", **_with_display(options))


class UbuntuDesktopSandbox(Sandbox):
    """A sandbox with the image "ubuntu-desktop", and a display."""

    def __init__(self, **options: Unpack[SandboxOptions]) -> None:
        super().__init__(image="ubuntu-desktop", **_with_display(options))


class AlpineDesktopSandbox(Sandbox):
    """A sandbox with the image "alpine-desktop", and a display."""

    def __init__(self, **options: Unpack[SandboxOptions]) -> None:
        super().__init__(image="alpine-desktop", **_with_display(options))


def _with_display(options: SandboxOptions) -> SandboxOptions:
    return {"enable_display": True, **options}
