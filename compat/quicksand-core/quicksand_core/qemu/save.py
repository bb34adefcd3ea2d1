"""Saves on disk."""

from quicksand.saves.save_manifest import VERSION as SAVE_VERSION
from quicksand.saves.save_places import PLAIN, WORKSPACE

from quicksand_core._absent import refusing

__all__ = ["SAVES_DIR", "SAVE_VERSION"]

SAVES_DIR = f"{WORKSPACE}/{PLAIN}"
"""Where saves are below the current directory."""

__getattr__ = refusing(__name__, SaveWriter="Sandbox.save writes saves")
