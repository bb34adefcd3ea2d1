"""Where the app keeps what is its own: the config, which people write, and its state.

What the engine has is elsewhere (`quicksand.host.paths`).
"""

from __future__ import annotations

import os
from pathlib import Path

APP = "quicksand"
CONFIG_VARIABLE = "QUICKSAND_CONFIG"


def config_file() -> Path:
    """The user's config; QUICKSAND_CONFIG names another one. It need not exist."""
    if chosen := os.environ.get(CONFIG_VARIABLE):
        return Path(chosen).absolute()
    import platformdirs

    return platformdirs.user_config_path(APP) / "config.toml"


def is_config_named() -> bool:
    """Whether the user has said which config: then it must be there."""
    return bool(os.environ.get(CONFIG_VARIABLE))
