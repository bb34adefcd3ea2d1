"""Foreign text that tries to do something, or to look like something else."""

from __future__ import annotations

HOSTILE = [
    "\x1b[2J\x1b[H owned",
    "\x1b]0;title\x07x",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "\x1bP1$tq\x1b\\",
    "\x9b31mred",
    "\x9d0;c1 osc\x9c",
    "\x1b[",
    "\x1b",
    "\x1b]0;never ends",
    "a\rb",
    "a\nb\vc\fd\x85e\u2028f\u2029g",
    "\u202egnp.exe",
    "\u2066\u2067\u2068\u2069",
    "zero\u200bwidth\u200d\ufeff\u2060",
    "\u00adsoft",
    "tag\U000e0041",
    "\ud800 lone",
    "Z" + "\u0301" * 300,
    "\u0301first",
    "x\ufe0f",
    "\ue000\uffff\U0010ffff",
    "[bold red]markup[/] [@click=app.quit]x[/]",
    "$accent {braces} %s",
    "A" * 100_000,
    "\x00" * 5000,
    "\x1b[31m" * 1000 + "end",
    "ㅤ\u3164\u115f",
]
