"""Sandbox classes with a fixed image; all other options are those of `Sandbox`."""

from __future__ import annotations

from typing import Any

from quicksand.sandbox import Sandbox


class DebianSandbox(Sandbox):
    """A sandbox with the default image."""

    def __init__(self, **options: Any) -> None:
        super().__init__(image="debian", **options)


class UbuntuSandbox(Sandbox):
    """A sandbox with the image "ubuntu", which a package or your own recipe has to provide."""

    def __init__(self, **options: Any) -> None:
        super().__init__(image="ubuntu", **options)


class AlpineSandbox(Sandbox):
    """A sandbox with the image "alpine", which a package or your own recipe has to provide."""

    def __init__(self, **options: Any) -> None:
        super().__init__(image="alpine", **options)
