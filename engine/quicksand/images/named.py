"""Sandboxes whose image is given by their class."""

from __future__ import annotations

from typing import Any

from quicksand.sandbox import Sandbox


class DebianSandbox(Sandbox):
    """A sandbox of the default image."""

    def __init__(self, **options: Any) -> None:
        """Takes what `Sandbox` takes, except ``image``."""
        super().__init__(image="debian", **options)
