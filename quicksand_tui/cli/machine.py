"""Makes the options of click that describe a new machine, one for each record of
`SandboxConfig`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem
from quicksand.base.errors import ConfigError
from quicksand.records.config import SandboxConfig
from quicksand.records.machine_options import MachineOption, options_of
from quicksand.records.mount import Mount, parse_mount

from quicksand_tui.cli.click_commands import completer_of
from quicksand_tui.model.remedy_words import hint_of
from quicksand_tui.verbs.verb import Kind

if TYPE_CHECKING:
    from quicksand_tui.cli.click_commands import Decorator


ORDER = "the directory of this host comes first"


def read_mount(word: str) -> Mount:
    """Reads HOST:GUEST[:ro|:protect]. Raises ConfigError, with a hint at the probable meaning."""
    try:
        return parse_mount(word)
    except ConfigError as error:
        raise ConfigError(error.words, hint=_meant(word) or error.advice) from None


def _meant(word: str) -> str:
    """Returns the probable meaning of a word that is no mount; "" if that is unclear."""
    host, colon, guest = word.partition(":")
    guest, _, mode = guest.partition(":")
    mode = f":{mode}" if mode else ""
    if not colon:
        absolute = os.path.abspath(host)  # noqa: PTH100 - a text to be shown
        return f"say where it is to be in the sandbox, as in {host}:/mnt/{Path(absolute).name}"
    if not guest:
        return ""
    if is_directory(guest) and host.startswith("/") and not is_directory(host):
        return f"{ORDER}: {guest}:{host}{mode}"
    if not guest.startswith("/"):
        return f"the path in the sandbox must be absolute: {host}:/{guest.removeprefix('./')}{mode}"
    return ""


def is_directory(path: str) -> bool:
    try:
        return Path(path).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):
        return False


MOUNTS = "mounts"
"""The keyword of the option whose value may be completed, and misunderstood, as that of `mount`."""


class _Choice(click.Choice[str]):
    """A choice of words. Dashes are taken for their underscores, as people write them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(str(value).replace("-", "_"), param, ctx)


def machine_options(*, but: Collection[str] = ()) -> Decorator:
    """Adds all options of a machine except those with the keywords ``but``. The options that are
    given arrive in one dict ``machine``, by the keywords of SandboxConfig."""
    records = [record for record in options_of(SandboxConfig) if record.keyword not in but]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def collected(**values: Any) -> Any:
            given = {record.keyword: values.pop(record.keyword) for record in records}
            machine = {key: value for key, value in given.items() if value is not None}
            return function(machine=machine, **values)

        wrapped: Callable[..., Any] = collected
        for record in reversed(records):
            wrapped = _click_option(record)(wrapped)
        return wrapped

    return decorate


def _click_option(record: MachineOption) -> Decorator:
    is_mounts = record.keyword == MOUNTS
    read_one = read_mount if is_mounts else record.read

    def read(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        """Returns None for an option that is not given, so that a save's own value is used."""
        if value is None or value == ():
            return None
        if record.is_switch:
            return value
        try:
            return read_one(value) if record.split is None else [*map(read_one, value)]
        except ConfigError as error:
            hint = f"\n{hint_of(error)}" if is_mounts and error.hint else ""
            raise click.BadParameter(f"{error}{hint}") from None

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [
            CompletionItem(word, help=note)
            for word, note in record.choices.items()
            if word.startswith(incomplete.replace("-", "_"))
        ]

    more: dict[str, Any] = {}
    if record.metavar:
        more["metavar"] = record.metavar
    elif not record.is_switch:
        more["type"] = _Choice([*map(str, record.choices)])
    return click.option(
        *record.flags_shown,
        record.keyword,
        multiple=record.split is not None,
        default=None,
        callback=read,
        help=record.help,
        shell_complete=completer_of(Kind.MOUNT) if is_mounts else complete,
        **more,
    )
