"""Measures what each import in deferred_imports.toml saves, and writes it there.

    python -m compileall -q engine smb3 terminal quicksand_tui images extras
    python scripts/deferred_imports.py

Each import is done in a new process after all that its path has loaded; the least processor time of
nine counts, in milliseconds.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_suffix(".toml")
ROUNDS = 9

MEASURE = """
import sys, time
begun = time.process_time()
{act}
print(1000 * (time.process_time() - begun))
"""
EVERY_HOME = """
from importlib import import_module
from quicksand.base.on_demand import homes_of
for home in homes_of(import_module({name!r})).values():
    import_module(home[0])
"""


def saved_ms(path: dict[str, Any], act: str) -> float:
    """Returns the milliseconds that ``act`` takes after what a path has loaded."""
    code = path["begin"] + MEASURE.format(act=act)
    command = [sys.executable, *path.get("flags", []), "-c", code]
    root = LIST.parents[1]
    return min(
        float(subprocess.run(command, cwd=root, capture_output=True, check=True).stdout)
        for _ in range(ROUNDS)
    )


def main() -> None:
    text = LIST.read_text()
    found = tomllib.loads(text)
    # Figures are written in the order of the file.
    kinds = re.findall(r"^\[\[(\w+)\]\]$", text, re.M)
    if kinds != sorted(kinds):
        raise SystemExit(f"{LIST.name}: a [[deferred]] stands behind a [[tables]]; move it before")
    figures = []
    for entry in [*found["deferred"], *found["tables"]]:
        act = (
            f"import {entry['imports']}"
            if "imports" in entry
            else EVERY_HOME.format(name=entry["in"])
        )
        figures.append(saved_ms(found["paths"][entry["on"]], act))
        print(f"{figures[-1]:6.1f} ms on {entry['on']:8} {entry['in']} {entry.get('imports', '')}")
    in_order = iter(figures)
    LIST.write_text(re.sub(r"^ms = .*$", lambda _: f"ms = {next(in_order):.1f}", text, flags=re.M))


if __name__ == "__main__":
    main()
