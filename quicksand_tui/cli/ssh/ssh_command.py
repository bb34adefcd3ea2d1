"""`quicksand-tui ssh`: runs the system's ssh; with --stdio it is the server behind it."""

from __future__ import annotations

import contextlib
import ctypes.util
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence

import click
from quicksand.base.errors import HostError
from quicksand.base.paths import paths

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.ssh.ssh_config import SUFFIX, find_typed, prepare_files, proxy_command, there


@contextlib.contextmanager
def no_search_for_libraries() -> Iterator[None]:
    """Has no library of C found by its name within the block. When asyncssh is imported it looks
    for two, with algorithms that are not offered on a pipe, and where they are not installed Python
    has gcc and ld look for them: a dozen processes and 0.1 s for each connection."""
    find = ctypes.util.find_library
    ctypes.util.find_library = lambda name: None
    try:
        yield
    finally:
        ctypes.util.find_library = find


WITH_ARGUMENT = frozenset("BbcDEeFIiJLlmOoPpQRSWw")
"""Options of ssh that take an argument (ssh(1))."""

FORWARDS = frozenset("LRDN")
CONFIGURED = {
    **{"localforward": "L", "remoteforward": "R", "dynamicforward": "D", "sessiontype": "N"},
    **{"controlpath": "S", "controlmaster": "S"},
}
"""Options of ssh's config (ssh_config(5)) that stand for these options after -o."""
MASTERS = frozenset("SO")
"""Options that name the master themselves, if any."""


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
    host NAME.qs, and as NAME.HOST.qs the sandbox NAME of HOST, a machine that `hosts` lists.
    """
    return run_ssh(stdio, name, argv)


def run_ssh(stdio: bool, name: str, argv: Sequence[str], *, machine: str = "") -> int:
    """Runs ssh with a sandbox of ``machine``, as `--host` takes it; "" leaves that to the name.
    Raises click.UsageError, QuicksandError."""
    if stdio:
        if argv:
            raise click.UsageError("--stdio takes nothing but NAME")
        if sys.stdin.isatty():
            raise click.UsageError(
                f"--stdio is for ssh to call; `quicksand-tui ssh {name}` is for you"
            )
        with no_search_for_libraries():
            from quicksand_tui.cli.ssh.server import serve_stdio  # noqa: PLC0415

        return serve_stdio(name, machine)
    user, _, host = name.rpartition("@")
    found = there(host.removesuffix(SUFFIX), machine) if machine else find_typed(host)
    program = shutil.which("ssh")
    if program is None:
        raise HostError("there is no ssh on this host", hint="install openssh-client")
    words = ["ssh", "-F", str(prepare_files()), *(["-l", user] if user else [])]
    host = found.word
    if not (is_shared := found.has_word):
        host = f"{found.name}{SUFFIX}"
        words += ["-o", f"ProxyCommand={proxy_command(paths(), found.host)}"]
    if not is_shared or has_forwards(argv):
        words += ["-S", "none"]
    sys.stdout.flush()
    os.execv(program, [*words, host, *argv])  # noqa: S606


def has_forwards(argv: Sequence[str]) -> bool:
    """Returns whether words for ssh ask for forwards, without naming the connection for them. They
    then need one of their own: a shared one takes the forwards over, so that ssh returns at once,
    and drops them with its end a minute later."""
    letters: set[str] = set()
    words = iter(argv)
    for word in words:
        if word == "--" or not word.startswith("-"):
            break  # from here on it is the command
        for place, letter in enumerate(word[1:], 2):
            letters.add(letter)
            if letter in WITH_ARGUMENT:
                argument = word[place:] or next(words, "")
                if letter == "o":
                    letters.add(_letter_of(argument))
                break
    return bool(letters & FORWARDS) and not letters & MASTERS


def _letter_of(option: str) -> str:
    """Returns the letter for an option of the config; "" if none matters here."""
    return CONFIGURED.get(re.split(r"[\s=]", option.strip(), maxsplit=1)[0].lower(), "")
