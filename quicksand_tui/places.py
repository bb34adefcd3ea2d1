"""Where the app keeps what is its own: the config, which people write, and its state.

What the engine has is elsewhere (`quicksand.host.paths`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

APP = "quicksand"
CONFIG_VARIABLE = "QUICKSAND_CONFIG"


def config_file() -> Path:
    """The user's config; QUICKSAND_CONFIG names another one. It need not exist."""
    if chosen := os.environ.get(CONFIG_VARIABLE):
        return Path(chosen).absolute()
    return base_dir("XDG_CONFIG_HOME", ".config") / APP / "config.toml"


def base_dir(variable: str, usual: str) -> Path:
    """One of the XDG base directories, ``usual`` within the home unless ``variable`` says another;
    on macOS where that has such things. (platformdirs takes long to import before the first paint.)
    """
    base = os.environ.get(variable, "")
    if base.startswith("/"):  # the specification has relative paths ignored
        return Path(base)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path.home() / usual


def is_config_named() -> bool:
    """Whether the user has said which config: then it must be there."""
    return bool(os.environ.get(CONFIG_VARIABLE))
