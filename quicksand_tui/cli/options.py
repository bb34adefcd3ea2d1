"""Options that several commands share, and what completes them."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from quicksand.snapshots.records import Node

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


def complete_saves(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of saves."""
    from quicksand.host.paths import paths
    from quicksand.saves.finding import all_stores

    return [
        CompletionItem(save.name, help=save.manifest.note if save.manifest else "damaged")
        for store in all_stores(paths())
        for save in store.list()
        if save.name.startswith(incomplete)
    ]


def complete_trash(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of saves in the trash."""
    from quicksand.host.paths import paths
    from quicksand.saves.census import list_trash
    from quicksand.saves.workspaces import known_stores

    names = {found.save.name for found in list_trash(known_stores(paths()))}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def complete_tags(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Tags of the checkpoints of the sandbox that was named before."""
    return [
        CompletionItem(node.tag, help=node.note)
        for node in _checkpoints_of(_named_before(ctx))
        if node.tag.startswith(incomplete)
    ]


def complete_targets(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """As `complete_tags`, and OTHER:TAG of other sandboxes: first their names, then their tags."""
    from quicksand.host.paths import paths
    from quicksand.registry import Registry

    found = complete_tags(ctx, param, incomplete)
    other, colon, start = incomplete.partition(":")
    if colon:
        found += [
            CompletionItem(f"{other}:{node.tag}", help=node.note)
            for node in _checkpoints_of(other)
            if node.tag.startswith(start)
        ]
        return found
    mine = _named_before(ctx)
    return found + [
        CompletionItem(f"{entry.name}:", help="its checkpoints")
        for entry in Registry(paths()).list()
        if entry.name.startswith(incomplete)
        and mine not in (None, entry.name, entry.id)
        and _checkpoints_of(entry.id)
    ]


def _named_before(ctx: click.Context) -> str | None:
    """The sandbox whose name stands before the word that is completed."""
    # Behind an option whose value is still to come click has not sorted the arguments yet.
    known = (ctx.params.get("name"), *(ctx.params.get("names") or ctx.args))
    return next(filter(None, known), None)


def _checkpoints_of(name: str | None) -> list[Node]:
    import contextlib

    from quicksand.errors import QuicksandError
    from quicksand.host.paths import paths
    from quicksand.layout import sandbox_dir
    from quicksand.registry import Registry
    from quicksand.snapshots.history import History

    with contextlib.suppress(QuicksandError, OSError):
        if name is not None:
            entry = Registry(paths()).find(name)
            return History(sandbox_dir(paths(), entry.id)).nodes()
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


MACHINE = {
    "memory": "memory",
    "cpus": "cpus",
    "network": "network_mode",
    "arch": "arch",
    "accel": "accel",
    "disk_size": "disk_size",
    "boot_timeout": "boot_timeout",
}
"""Options of `machine_options`, and the keywords of SandboxConfig that they are."""


def machine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a new machine is made of. Those that are given arrive as ``machine``, by the keywords of
    SandboxConfig."""

    @functools.wraps(function)
    def collected(**values: Any) -> Any:
        given = {keyword: values.pop(option) for option, keyword in MACHINE.items()}
        machine = {key: value for key, value in given.items() if value is not None}
        return function(machine=machine, **values)

    wrapped: Callable[..., Any] = collected
    for option in reversed(_machine_option_list()):
        wrapped = option(wrapped)
    return wrapped


def _machine_option_list() -> tuple[Decorator, ...]:
    """In the order of the help."""
    return (
        click.option(
            "--memory", metavar="SIZE", help='Memory, as in "512M" or "2G".  [default: 512M]'
        ),
        click.option("--cpus", type=int, metavar="N", help="Virtual CPUs.  [default: 1]"),
        click.option(
            "--network",
            type=click.Choice(["none", "mounts-only", "full"]),
            help="What it can reach: nothing, forwarded ports only, or all.  "
            "[default: mounts-only]",
        ),
        click.option(
            "--arch", metavar="ARCH", help="The guest's architecture.  [default: this host's]"
        ),
        click.option(
            "--accel", metavar="NAME", help="kvm, hvf, whpx, tcg or auto.  [default: auto]"
        ),
        click.option("--disk-size", metavar="SIZE", help="Grow the disk to this size."),
        click.option(
            "--boot-timeout", type=float, metavar="SECONDS", help="Give up after this time."
        ),
    )


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
