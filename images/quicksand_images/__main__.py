"""The command `python -m quicksand_images build NAME`, which needs no app."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from quicksand.base.errors import QuicksandError
from quicksand.disks.images.stored_image import StoredImage

from quicksand_images.build import build_image, ensure_image


def main() -> int:
    parser = argparse.ArgumentParser(prog="quicksand_images", description="Build images.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="build an image and make it the current one")
    build.add_argument("recipe", nargs="?", default="debian", help="a name, or a .toml file")
    build.add_argument("--in-sandbox", action="store_true", help="use no apt of this host")
    build.set_defaults(make=_build)
    ensure = commands.add_parser("ensure", help="build an image if it is not there")
    ensure.add_argument("recipe", nargs="?", default="debian", help="a name")
    ensure.set_defaults(make=_ensure)
    for command in (build, ensure):
        command.add_argument("--arch", help="amd64 or arm64; default: this host's")
    arguments = parser.parse_args()
    try:
        image = asyncio.run(arguments.make(arguments))
    except QuicksandError as error:
        sys.stderr.write(f"error: {error}\n")
        if error.hint:
            sys.stderr.write(f"hint: {error.hint}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    sys.stdout.write(f"{image.root}\n")
    return 0


async def _build(given: argparse.Namespace) -> StoredImage:
    recipe = Path(given.recipe) if given.recipe.endswith(".toml") else given.recipe
    return await build_image(recipe, arch=given.arch, progress=_show, in_sandbox=given.in_sandbox)


async def _ensure(given: argparse.Namespace) -> StoredImage:
    return await ensure_image(given.recipe, _show, arch=given.arch)


_shown = ""


def _show(stage: str, done: int, total: int) -> None:
    global _shown  # noqa: PLW0603 - one line for a stage, however often it is reported
    if stage != _shown:
        _shown = stage
        sys.stderr.write(f"{stage}\n")


if __name__ == "__main__":
    sys.exit(main())
