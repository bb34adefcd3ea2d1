"""The state of a machine's keyboard and pointer, as clients have left it: the pointer's place, and
the keys and buttons that are held down. It is in a file of the machine, so that all clients know it
and a checkpoint can release everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quicksand.base.error_text import choose
from quicksand.base.errors import ConfigError, QuicksandError
from quicksand.base.files import read_json, write_json
from quicksand.base.limits import BUTTONS
from quicksand.display.checks import is_whole
from quicksand.display.keys import parse_key
from quicksand.records.layout import MachineDir

ABS_MAX = 0x7FFF
"""The right and lower edge of the screen (QEMU, INPUT_EVENT_ABS_MAX)."""

KEYS_MAX = 64


@dataclass(slots=True)
class Held:
    """The state of keyboard and pointer, as far as clients have changed it."""

    position: tuple[int, int] | None = None
    """The place to which the pointer was moved; None if nobody has moved it."""
    buttons: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    @classmethod
    def read(cls, machine: MachineDir) -> Held:
        """The contents of the machine's file; nothing held if there is none."""
        try:
            return cls._parse(read_json(machine.input_record))
        except (OSError, ValueError, KeyError, TypeError, QuicksandError):
            return cls()

    @classmethod
    def _parse(cls, value: dict[str, Any]) -> Held:
        x, y = value["position"] or (0, 0)
        return cls(
            position=(check_place(x), check_place(y)) if value["position"] else None,
            buttons=tuple(check_button(button) for button in value["buttons"][: len(BUTTONS)]),
            keys=tuple(parse_key(key) for key in value["keys"][:KEYS_MAX]),
        )

    def write(self, machine: MachineDir) -> None:
        """Write the machine's file. Raises PathError, DiskSpaceError."""
        value = {"position": self.position, "buttons": self.buttons, "keys": self.keys}
        write_json(machine.input_record, value, read=self._parse, durable=False)


def check_place(value: object) -> int:
    """``value`` if it is a coordinate from 0 to ABS_MAX. Raises ConfigError."""
    if not is_whole(value) or not 0 <= value <= ABS_MAX:
        raise ConfigError(
            f"{value!r} is no place of the pointer",
            hint=f"0 is the left or upper edge of the screen, {ABS_MAX} the right or lower one",
        )
    return value


def place_on(size: tuple[int, int], x: int, y: int) -> tuple[int, int]:
    """Return the place to which the pointer must be moved to be at the pixel (x, y) of a screen of
    this size. Raises ConfigError if it has no such pixel."""
    for value, side in zip((x, y), size, strict=True):
        if not is_whole(value) or not 0 <= value < side:
            raise ConfigError(
                f"({x!r}, {y!r}) is no pixel of the screen",
                hint=f"it has {size[0]}x{size[1]}: 0,0 to {size[0] - 1},{size[1] - 1}",
            )
    # The middle of the pixel, so that it is met however the guest rounds.
    across, down = (
        (2 * v + 1) * (ABS_MAX + 1) // (2 * s) for v, s in zip((x, y), size, strict=True)
    )
    return across, down


def pixel_on(size: tuple[int, int], place: tuple[int, int]) -> tuple[int, int]:
    """Return the pixel of a screen of this size at which the pointer is after a move to a place."""
    across, down = (v * s // (ABS_MAX + 1) for v, s in zip(place, size, strict=True))
    return across, down


def check_button(value: object) -> str:
    """``value`` if it is a button of the pointer. Raises ConfigError."""
    if not isinstance(value, str) or value.lower() not in BUTTONS:
        raise ConfigError(f"{value!r} is no button: {choose(BUTTONS)}")
    return value.lower()
