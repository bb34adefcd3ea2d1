"""`quicksand-tui ssh`: runs the system's ssh; with --stdio it is the server behind it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

import click
from quicksand.base.errors import HostError
from quicksand.base.paths import paths
from quicksand.records.registry import Registry

from quicksand_tui.cli.commands import command_of
from quicksand_tui.cli.ssh_files import SUFFIX, prepare_files
from quicksand_tui.cli.ssh_server.importing import no_search_for_libraries

WITH_ARGUMENT = frozenset("BbcDEeFIiJLlmOoPpQRSWw")
"""Options of ssh that take one (ssh(1))."""

FORWARDS = frozenset("LRDN")
MASTERS = frozenset("SO")
"""Options that say themselves which master is meant, if any."""


@command_of("ssh")
def ssh_command(stdio: bool, name: str, argv: tuple[str, ...]) -> int:
    """Run ssh with a sandbox: a shell, or a command.

    Without USER you log in as the user that the image names, or as root. What follows NAME is for
    ssh: its options, then the command. The sandbox needs no network and no sshd, and nothing
    listens on this host.

    \b
    quicksand-tui ssh web                    a shell
    quicksand-tui ssh joe@web uname -a       a command, as the user joe
    quicksand-tui ssh web -N -L 8080:127.0.0.1:80
                                             a forward until Ctrl-C

    After `quicksand-tui ssh-config --install`, ssh, scp, rsync, git and editors reach NAME as the
    host NAME.qs.
    """
    if stdio:
        if argv:
            raise click.UsageError("--stdio takes nothing but NAME")
        if sys.stdin.isatty():
            raise click.UsageError(
                f"--stdio is for ssh to call; `quicksand-tui ssh {name}` is for you"
            )
        with no_search_for_libraries():
            from quicksand_tui.cli.ssh_server.stdio import serve_stdio  # noqa: PLC0415

        return serve_stdio(name.removesuffix(SUFFIX))
    user, _, host = name.rpartition("@")
    registry = Registry(paths())
    # A sandbox may itself be called as a host of ours: then it is meant.
    found = registry.named(host) or registry.find(host.removesuffix(SUFFIX))
    program = shutil.which("ssh")
    if program is None:
        raise HostError("there is no ssh on this host", hint="install openssh-client")
    words = ["ssh", "-F", str(prepare_files()), *(["-l", user] if user else [])]
    if has_forwards(argv):
        words += ["-S", "none"]
    sys.stdout.flush()
    os.execv(program, [*words, found.name + SUFFIX, *argv])  # noqa: S606


def has_forwards(argv: Sequence[str]) -> bool:
    """Returns whether words for ssh ask for forwards, and leave it open which connection is to
    carry them. They then want one of their own: a shared one takes them over, so that ssh returns
    at once, and drops them with its end a minute later."""
    letters = set()
    words = iter(argv)
    for word in words:
        if word == "--" or not word.startswith("-"):
            break  # from here on it is the command
        for place, letter in enumerate(word[1:], 2):
            letters.add(letter)
            if letter in WITH_ARGUMENT:
                if place == len(word):
                    next(words, None)
                break
    return bool(letters & FORWARDS) and not letters & MASTERS
