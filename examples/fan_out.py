"""Thirty commands over all machines of a fleet, each in a sandbox of its own; results as they come.

quicksand-tui fleet up --local 3
python examples/fan_out.py
quicksand-tui fleet down
"""

import asyncio
from collections import Counter
from contextlib import aclosing

from quicksand import Fleet

IMAGE = "debian"
COMMANDS = [f"echo {number} squared is $(({number} * {number}))" for number in range(1, 31)]


async def main() -> None:
    places: Counter[str] = Counter()
    async with (
        Fleet.open() as fleet,
        aclosing(fleet.map(IMAGE, COMMANDS, memory="256M", retries=1)) as results,
    ):
        async for result in results:
            places[result.host or "nowhere"] += 1
            words = result.stdout.strip() if result.ok else f"failed: {result.error}"
            print(f"{result.index + 1:>2} on {result.host} in {result.took_s:.1f} s: {words}")
    print("commands by machine:", dict(sorted(places.items())))


if __name__ == "__main__":
    asyncio.run(main())
