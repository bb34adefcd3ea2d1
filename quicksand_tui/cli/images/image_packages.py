"""`quicksand-tui images new`: begins a package for an image of one's own."""

from __future__ import annotations

from pathlib import Path

from quicksand_images.scaffold import make_scaffold

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, print_json, say
from quicksand_tui.model.text import clean


@command_of("images new")
def new_command(kind: str, name: str, into: Path | None, on: str, as_json: bool) -> int:
    """Begin a package for an image of your own, which others can install.

    `base` is an image made of a recipe; `layer` is what a script adds to another image. NAME is the
    image's name; the package is called quicksand-NAME. Its README tells how to build, try and
    publish it.
    """
    made = make_scaffold(kind, name, place=into, on=on)
    if as_json:
        facts = {"kind": made.kind, "image": made.image, "package": made.package}
        print_json({**facts, "path": str(made.place), "files": list(made.files)})
        return Exit.OK
    print(clean(made.place))
    edited = "setup.sh" if made.kind == "layer" else f"{made.image}.toml"
    say(f"edit {edited}; README.md tells how to build and publish the package")
    return Exit.OK
