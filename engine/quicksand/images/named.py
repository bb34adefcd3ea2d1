"""Sandboxes whose image is given by their class; for the rest they take what `Sandbox` takes."""

from __future__ import annotations

from typing import Any

from quicksand.sandbox import Sandbox


class DebianSandbox(Sandbox):
    """A sandbox of the default image."""

    def __init__(self, **options: Any) -> None:
        super().__init__(image="debian", **options)


class UbuntuSandbox(Sandbox):
    """A sandbox of the image "ubuntu", which a package or a recipe of yours has to bring."""

    def __init__(self, **options: Any) -> None:
        super().__init__(image="ubuntu", **options)


class AlpineSandbox(Sandbox):
    """A sandbox of the image "alpine", which a package or a recipe of yours has to bring."""

    def __init__(self, **options: Any) -> None:
        super().__init__(image="alpine", **options)
