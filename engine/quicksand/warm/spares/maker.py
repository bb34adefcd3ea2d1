"""The program that makes spares in the background: for the machine of the record on its stdin, and
for orders; or, if that record is null, for orders only, with the templates that they need (see
`next_start`)."""

from __future__ import annotations

import asyncio
import json
import sys

from quicksand.base.errors import QuicksandError
from quicksand.base.faults import noting_faults
from quicksand.base.paths import paths
from quicksand.qemu.keeper_parts.bounds import no_core_files
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.warm.spares.stock import expect, restock


def main() -> int:
    """Make the spares. Prints nothing; returns the exit code."""
    try:
        value, registry = json.loads(sys.stdin.buffer.read()), Registry(paths())
        if value is None:
            asyncio.run(restock(registry))
        else:
            asyncio.run(expect(registry, Record.from_json(value)))
    except (QuicksandError, ValueError):
        return 1
    return 0


if __name__ == "__main__":
    no_core_files()
    with noting_faults():
        sys.exit(main())
