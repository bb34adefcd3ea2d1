"""The environment variables that change how sandboxes start and are kept, and their possible
values. The effect of each is described where it is used, and for users in
docs/internals/snapshots.md.

A user's call to which they apply checks them all at its beginning (`check_settings`), so that its
background work finds them valid.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from quicksand.base.error_text import choose
from quicksand.base.errors import ConfigError

ON, OFF, USE = "on", "off", "use"
"""USE: use existing ones, but make none in the background."""

MEANINGS = {OFF: ("0", "no", "false", "off"), ON: ("1", "yes", "true", "on")}
"""The accepted words for each, in upper or lower case."""

AUTO = ""
"""The value of a variable that leaves the choice to the engine."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable."""

    variable: str
    choices: tuple[str, ...]
    """The values that it can have."""
    default: str
    """The value if it is not set, or empty."""

    def read(self) -> str:
        """The value. Raises ConfigError if it is none of the choices."""
        said = os.environ.get(self.variable, "")
        for value, words in MEANINGS.items():
            if value in self.choices and said.lower() in words:
                return value
        if said:
            require_one(said, self.choices, f"{self.variable} cannot be {said!r}")
        return said or self.default

    @property
    def is_off(self) -> bool:
        """Whether the user has turned the subject of this variable off. Raises ConfigError."""
        return self.read() == OFF


TIER = Setting("QUICKSAND_TIER", ("pages", "internal"), AUTO)
TRACKING = Setting(
    # The keeper imports nothing of ours, so it repeats this name and the first value.
    "QUICKSAND_TRACKING",
    ("write-protect", "soft-dirty", "anonymous"),
    "write-protect",
)
CHECK_MEMORY = Setting("QUICKSAND_CHECK_MEMORY", (ON, OFF), OFF)
TEMPLATES = Setting("QUICKSAND_TEMPLATES", (ON, USE, OFF), ON)
SPARES = Setting("QUICKSAND_SPARES", (ON, USE, OFF), ON)

SETTINGS = (TIER, TRACKING, CHECK_MEMORY, TEMPLATES, SPARES)


def check_settings() -> None:
    """Raise ConfigError if one of the variables has an invalid value."""
    for setting in SETTINGS:
        setting.read()


def require_one(said: str, choices: Sequence[str], message: str) -> None:
    """Raise ConfigError with that message and the choices, if ``said`` is none of them."""
    if said not in choices:
        raise ConfigError(f"{message}: {choose(choices)}")
