"""The command `quicksand-tui`."""

from __future__ import annotations

import gc
import resource
import sys

YOUNG_MAX = 100_000
"""Objects that are made before Python looks for garbage among them. By default that is 700, and
importing what `run` needs makes 60,000, none of them garbage: looking at 20,000 takes 2.5 ms."""


def no_core_files() -> None:
    """Keeps the memory of this process, and of those that it starts, out of core files: there are
    tokens in it. (quicksand.qemu.keeper_parts.bounds has the same; the engine is imported
    later.)"""
    most = 0 if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0 else 1
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


def main() -> None:
    """Runs the command line; without arguments on a terminal, the app."""
    gc.set_threshold(YOUNG_MAX)
    no_core_files()
    from quicksand_tui.cli.main import run  # noqa: PLC0415

    code = run(sys.argv[1:])
    # All memory goes with the process, so Python need not look for garbage when it ends.
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
