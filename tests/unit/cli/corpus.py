"""Text as a hostile guest would send it."""

from __future__ import annotations

HOSTILE = (
    "\x1b]0;owned\x07",
    "\x1b]52;c;cm0gLXJmIH4=\x1b\\",
    "\x1b[2J\x1b[H",
    "\x1b[31mred\x1b[0m",
    "\x1bP+q544e\x1b\\",
    "\x1b[6n\x1b[c",
    "\x1b_Gi=1;AAAA\x1b\\",
    "\x9b31mC1\x9c",
    "\x90q\x9c",
    "safe\rforged",
    "back\x08\x08\x08\x08",
    "bell\x07nul\x00del\x7f",
    "\u202egnp.exe",
    "\u2066isolate\u2069",
    "zero\u200bwidth\ufeff",
    "tag\U000e0041\U000e0042",
    "line\u2028separator\u2029",
    "lone\ud800surrogate",
    "raw\udc9bbyte",
    "private\ue000use",
    "z" + "\u0301" * 50,
    "new\nline\ttab\x0bvertical\x0cfeed",
    "next\x85line",
)
