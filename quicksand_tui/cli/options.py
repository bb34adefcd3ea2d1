"""Options that several commands share, and what completes them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def complete_sandboxes(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of sandboxes."""
    from quicksand.host.paths import paths
    from quicksand.registry import Registry

    entries = Registry(paths()).list()
    return [
        CompletionItem(entry.name, help=entry.status.value)
        for entry in entries
        if entry.name.startswith(incomplete)
    ]


def complete_images(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of images."""
    from quicksand.host.paths import paths
    from quicksand.images.resolve import ImageResolver

    images = ImageResolver(paths()).list()
    return [
        CompletionItem(image.name, help=image.source)
        for image in images
        if image.name.startswith(incomplete)
    ]


def complete_tags(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Tags of the checkpoints of the sandbox that was named before."""
    import contextlib

    from quicksand.errors import QuicksandError
    from quicksand.host.paths import paths
    from quicksand.layout import sandbox_dir
    from quicksand.registry import Registry
    from quicksand.snapshots.history import History

    # Behind an option whose value is still to come click has not sorted the arguments yet.
    known = (ctx.params.get("name"), *(ctx.params.get("names") or ctx.args))
    name = next(filter(None, known), None)
    with contextlib.suppress(QuicksandError, OSError):
        if name is not None:
            entry = Registry(paths()).find(name)
            nodes = History(sandbox_dir(paths(), entry.id)).nodes()
            return [
                CompletionItem(node.tag, help=node.note)
                for node in nodes
                if node.tag.startswith(incomplete)
            ]
    return []


def sandbox_argument(name: str = "name", **keywords: Any) -> Decorator:
    """A NAME argument."""
    return click.argument(name, metavar="NAME", shell_complete=complete_sandboxes, **keywords)


def sandboxes_argument(*, required: bool = True) -> Decorator:
    """One or more NAME arguments."""
    return click.argument(
        "names", metavar="NAME...", nargs=-1, required=required, shell_complete=complete_sandboxes
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def command_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What `run` and `exec` have in common."""
    for option in (
        click.argument("argv", metavar="[--] [COMMAND]...", nargs=-1, type=click.UNPROCESSED),
        click.option("-i", "--interactive", is_flag=True, help="Pass stdin on to the command."),
        click.option("-t", "--tty", is_flag=True, help="Run it in a terminal."),
        click.option(
            "-e",
            "--env",
            multiple=True,
            metavar="K=V",
            callback=_parse_env,
            help="Set an environment variable; K alone passes ours on. May be repeated.",
        ),
        click.option("--user", metavar="USER", help="Run it as this user instead of root."),
        click.option("--cwd", metavar="DIR", help="Run it in this directory of the guest."),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help="End it after this time and exit with 124.",
        ),
    ):
        function = option(function)
    return function


def _parse_env(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    found = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise click.BadParameter(f"{text!r} does not begin with a variable's name")
        if equals:
            found[name] = value
        elif name in os.environ:
            found[name] = os.environ[name]
    return found


def detach_keys_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--detach-keys."""
    from quicksand_tui.cli.keys import DEFAULT_KEYS

    return click.option(
        "--detach-keys",
        default=DEFAULT_KEYS,
        show_default=True,
        metavar="KEYS",
        help="Keys that leave the terminal running; the first one twice sends it.",
    )(function)
