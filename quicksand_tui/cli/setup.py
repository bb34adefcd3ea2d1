"""`quicksand-tui setup`: QEMU and the default image, got if they are not there."""

from __future__ import annotations

import time

import click

from quicksand_tui.cli.output import say
from quicksand_tui.cli.runner import run_async

QUIET_S = 1.0
"""Steps shorter than this need no line."""


class Lines:
    """Progress as lines, one a stage: it is read in logs as often as on a screen."""

    def __init__(self) -> None:
        self._stage = ""
        self._since = time.monotonic()

    def stage(self, name: str, done: int, total: int) -> None:
        """As the engine reports it."""
        if name != self._stage:
            self.end()
            self._stage = name
            say(f"   {name} …")

    def end(self) -> None:
        """Say how long the last stage took."""
        seconds = time.monotonic() - self._since
        if self._stage and seconds >= QUIET_S:
            say(f"   {self._stage}: {seconds:.0f} s")
        self._stage = ""
        self._since = time.monotonic()


@click.command("setup")
@click.option("--image", default="debian", show_default=True, help="Image to have ready.")
def command(image: str) -> int:
    """Get what a first start needs: QEMU 7.2 or newer, an accelerator, the default image.

    What is there already is left alone; a second call takes a moment.
    """
    return run_async(lambda _: _prepare(image))


async def _prepare(image: str) -> int:
    from quicksand.host.arch import Architecture
    from quicksand.qemu.accelerator import find_accelerator
    from quicksand.qemu.provision import ensure_qemu
    from quicksand_images import ensure_image

    lines = Lines()
    binaries = await ensure_qemu(lines.stage, arch=Architecture.host().value)
    lines.end()
    say(f"ok QEMU {binaries.version_text} ({binaries.origin})")
    status = await find_accelerator(binaries)
    why = f"; {status.error}" if status.error else ""
    say(f"ok accelerator {status.accelerator}{why}")
    found = await ensure_image(image, lines.stage)
    lines.end()
    say(f"ok image {found.name} {found.version} ({found.digest[:12]})")
    return 0
