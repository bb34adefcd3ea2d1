"""The letters of jump mode."""

from __future__ import annotations

from typing import Final

LETTERS: Final = "asdfghjklqwertyuiopzxcvbnm"
"""The letters of the codes; those under the fingers come first."""


def jump_codes(count: int) -> list[str]:
    """Returns a code for each of ``count`` places: one letter, or two if there are more places than
    letters; at most as many as there are pairs. No code is the beginning of another."""
    if count <= len(LETTERS):
        return list(LETTERS[:count])
    pairs = [first + second for first in LETTERS for second in LETTERS]
    return pairs[:count]
