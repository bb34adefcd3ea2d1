"""Shortens output to the terminal by writing styles only where they change."""

from __future__ import annotations

import re
from functools import lru_cache

_SGR = re.compile(r"\x1b\[([\d;]*)m")
_PLAIN = "0"

_BASIC = {
    **{str(number): "fg" for number in (*range(30, 38), 39, *range(90, 98))},
    **{str(number): "bg" for number in (*range(40, 48), 49, *range(100, 108))},
}
"""The sixteen colours, and the default ones, by their SGR parameter."""

Style = tuple[str, str, str]
"""Foreground, background, and the rest, as parameters of SGR."""

NOTHING: Style = ("", "", "")


def slim(text: str) -> str:
    """Returns shorter output that draws the same as ``text``, which must begin and end unstyled.
    Returns ``text`` itself if it is not in the form that Textual writes."""
    parts = _SGR.split(text)
    if len(parts) < 4:
        return text
    kept = [parts[0]]
    shown = wanted = NOTHING
    for at in range(1, len(parts), 2):
        parameters, run = parts[at], parts[at + 1]
        if parameters in ("", _PLAIN):
            wanted = NOTHING
        else:
            style = _parse(parameters)
            if style is None or wanted != NOTHING:
                return text
            wanted = style
        if run:
            # Runs with line ends and moves must stay unstyled: colours would spread.
            if wanted != shown:
                kept.append(_change(shown, wanted))
                shown = wanted
            kept.append(run)
    if wanted != NOTHING:
        return text  # the style is meant to continue
    if shown != NOTHING:
        kept.append("\x1b[0m")
    return "".join(kept)


@lru_cache(1024)
def _change(shown: Style, wanted: Style) -> str:
    """Returns the sequence that changes one style to another."""
    if wanted == NOTHING:
        return "\x1b[0m"
    if shown[2] != wanted[2] or any(
        now and not then for now, then in zip(shown, wanted, strict=True)
    ):
        # Not every terminal can reset attributes one by one.
        words = ["0"] if shown != NOTHING else []
        return f"\x1b[{';'.join([*words, *filter(None, (wanted[2], wanted[0], wanted[1]))])}m"
    changed = [then for now, then in zip(shown[:2], wanted[:2], strict=True) if now != then]
    return f"\x1b[{';'.join(changed)}m"


@lru_cache(1024)
def _parse(parameters: str) -> Style | None:
    """Returns the parts of a style; None if Textual does not write it so."""
    colours = {"fg": "", "bg": ""}
    rest: list[str] = []
    words = parameters.split(";")
    at = 0
    while at < len(words):
        word = words[at]
        if word in ("38", "48"):
            length = {"5": 3, "2": 5}.get("".join(words[at + 1 : at + 2]), 0)
            whole = words[at : at + length]
            if not length or len(whole) < length:
                return None
            colours["fg" if word == "38" else "bg"] = ";".join(whole)
            at += length
            continue
        if word in _BASIC:
            colours[_BASIC[word]] = word
        elif word in ("", "0"):
            return None
        else:
            rest.append(word)
        at += 1
    return colours["fg"], colours["bg"], ";".join(rest)
