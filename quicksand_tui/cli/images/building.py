"""The steps of `images build`, and its display while an image is built."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from quicksand_tui.cli.output import Exit, is_terminal, print_json, say
from quicksand_tui.cli.progress_display import shown
from quicksand_tui.cli.reported_progress import Standing, Whole
from quicksand_tui.cli.runner import run_async
from quicksand_tui.model.amounts import left_text
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.base.progress import Progress
    from quicksand.disks.images.stored_image import StoredImage

    from quicksand_tui.cli.runner import Signals


def build_of_container(
    source: str,
    name: str,
    options: dict[str, Any],
    *,
    build: bool | None,
    in_sandbox: bool,
    as_json: bool,
) -> int:
    """Builds an image from a container image; returns the exit code. ``options`` are those of
    `Order`; those that are None or empty are left to it."""
    # httpx, which asks registries, loads much; help and recipes need none of it.
    from quicksand_images.oci.build import Order, build_from_oci  # noqa: PLC0415

    given = {key: value for key, value in options.items() if value}
    order = Order(source=source, name=name, **given)

    def make(stage: Progress) -> Awaitable[StoredImage]:
        return build_from_oci(order, progress=stage, build=build, in_sandbox=in_sandbox)

    return carry_out(name or source, make, as_json=as_json)


def carry_out(
    shown_name: str, make: Callable[[Progress], Awaitable[StoredImage]], *, as_json: bool
) -> int:
    """Has an image made, shows the progress, and tells the result; returns the exit code."""
    progress = BuildProgress(clean(shown_name))

    async def main(signals: Signals) -> int:
        async with shown(progress.look):
            image = await make(progress.stage)
        if as_json:
            facts = {"name": image.name, "version": image.version, "digest": image.digest}
            print_json({**facts, "arch": image.arch, "path": str(image.root), "size": image.size})
        else:
            print(image.root)
        return Exit.OK

    return run_async(main)


class BuildProgress:
    """Shows the progress of a build: on a terminal in one line, elsewhere a line for each stage."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._stage = ""
        self._done = self._total = 0
        self._whole = Whole(clock)
        self._live = is_terminal(sys.stderr)

    def stage(self, name: str, done: int, total: int) -> None:
        self._whole.take(done, total)
        if name != self._stage and not self._live:
            say(clean(self._line(name)))
        self._stage, self._done, self._total = name, done, total

    def _line(self, stage: str) -> str:
        share, left = self._whole.share, self._whole.left_s
        told = stage if share is None else f"{share:4.0%} {stage}"
        return f"{told}, {left_text(left)}" if left >= 1 else told

    def look(self) -> Standing:
        return Standing(
            text=f"{self._name}: {self._stage}" if self._stage else self._name,
            stage=self._stage,
            done=self._done,
            total=self._total,
            in_bytes=False,
            share=self._whole.share,
            left_s=self._whole.left_s,
        )
