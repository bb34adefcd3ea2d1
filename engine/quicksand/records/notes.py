"""A person's note on a checkpoint or a save: one rule for writing and reading it."""

from __future__ import annotations

from quicksand.base.errors import ConfigError

NOTE_MAX = 16_384
"""Characters. A record has 4 MiB at most, and a character up to 12 bytes of it."""


def check_note(note: object) -> str:
    """Return ``note`` if it is a valid note. Raises ConfigError."""
    if not isinstance(note, str):
        raise ConfigError(f"{note!r:.80} is no note", hint='a text; "" is none')
    if len(note) > NOTE_MAX:
        raise ConfigError(
            f"a note of {len(note)} characters is too long", hint=f"{NOTE_MAX} is the most"
        )
    if note != _whole(note):
        raise ConfigError(
            f"the note {note!r:.80} has half a character, which no file or terminal takes",
            hint="leave it out",
        )
    return note


def read_note(note: object) -> str:
    """Return the note in a record. Older versions wrote whatever they were given: None counts as no
    note, and half a character as a question mark. Raises ConfigError for anything but text."""
    return check_note(
        _whole(note)[:NOTE_MAX] if isinstance(note, str) else "" if note is None else note
    )


def _whole(text: str) -> str:
    """Return ``text`` with a question mark for each surrogate, which is half of a character."""
    return text.encode("utf-8", "replace").decode()
