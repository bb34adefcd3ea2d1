"""The command `quicksand-tui`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; without arguments on a terminal, the app."""
    from quicksand_tui.cli.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
