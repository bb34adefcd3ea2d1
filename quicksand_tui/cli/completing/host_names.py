"""Completes names of other machines."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import click
from click.shell_completion import CompletionItem

from quicksand_tui.cli.completing.words import beginning
from quicksand_tui.home.host_file import HostsError, read_hosts
from quicksand_tui.home.state import config_file


def complete_hosts(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of machines of the config."""
    return beginning(incomplete, sorted(_of_config().items()))


def _of_config() -> Mapping[str, str]:
    with contextlib.suppress(HostsError, OSError):
        return read_hosts(config_file())
    return {}
