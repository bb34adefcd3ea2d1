"""`quicksand-tui images warm`: make the template that first starts go on from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from quicksand_tui.cli.options import complete_images, json_option, machine_options

if TYPE_CHECKING:
    from quicksand_tui.cli.runner import Signals


@click.command("warm")
@click.argument("image", default="debian", shell_complete=complete_images)
@machine_options
@json_option
def warm(image: str, machine: dict[str, Any], as_json: bool) -> int:
    """Boot a machine once and keep it, so that first starts go on from there.

    A template is of one machine: name the memory, CPUs, network and disk size that `run` will be
    asked for. `run` has it made in the background after a cold start; this waits for it, and tells
    what goes wrong. The last used ones are kept, about 100 MB each.
    """
    from quicksand.config import SandboxConfig
    from quicksand.host.paths import paths
    from quicksand.registry import Registry
    from quicksand.stats import allocated_size
    from quicksand.template_maker import warm as warm_up

    from quicksand_tui.cli.exits import Exit
    from quicksand_tui.cli.output import print_json, show_size
    from quicksand_tui.cli.progress import StartProgress, shown
    from quicksand_tui.cli.runner import run_async
    from quicksand_tui.cli.text import clean

    config = SandboxConfig.parse({"image": image, **machine})
    progress = StartProgress(image)

    async def main(signals: Signals) -> int:
        started = time.perf_counter()
        async with shown(progress.describe):
            origin, made = await warm_up(Registry(paths()), config, progress=progress.stage)
        seconds = time.perf_counter() - started
        root = origin.place.root
        size = allocated_size(root)
        if as_json:
            facts = {"image": image, "made": made, "path": str(root), "size": size}
            print_json({**facts, "seconds": round(seconds, 3)})
        else:
            what = f"made in {seconds:.1f} s" if made else "there already"
            print(f"{clean(image)}: {what}, {show_size(size)}, {clean(root)}", flush=True)
        return Exit.OK

    return run_async(main)
