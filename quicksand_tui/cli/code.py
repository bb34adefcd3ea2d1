"""`quicksand-tui code`: opens an editor of this host on a sandbox, by SSH."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import click
from quicksand.base.errors import HostError, StateError
from quicksand.records.config import NetworkMode

from quicksand_tui.cli.commands import command_of
from quicksand_tui.cli.output import Exit, say
from quicksand_tui.cli.runner import Signals, attached, run_async
from quicksand_tui.cli.ssh_config import is_installed
from quicksand_tui.cli.ssh_files import SUFFIX, prepare_files
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

GLIBC_LEAST = (2, 28)
"""The oldest C library for which VS Code's server is built ("Remote Development with Linux" of its
documentation)."""

MEMORY_KIB_LEAST = 1_000_000
"""VS Code's server wants 1 GB ("System requirements" of Remote-SSH)."""

DISK_KIB_LEAST = 500_000
"""The unpacked server takes some 400 MB, and extensions more."""

FIELD_MAX = 64

LOOK = """
echo "os $(uname -s)"
echo "arch $(uname -m)"
echo "glibc $(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //')"
echo "memory $(sed -n 's/^MemTotal: *\\([0-9]*\\) kB$/\\1/p' /proc/meminfo)"
echo "disk $(df -Pk . | sed -n '2s/^[^ ]* *[0-9]* *[0-9]* *\\([0-9]*\\) .*/\\1/p')"
for program in bash tar curl wget; do
    command -v $program >/dev/null 2>&1 && echo "$program yes"
done
exit 0
"""
"""What an editor's server will meet in the guest."""


class Guest(NamedTuple):
    """What a guest says of itself. All of it is only words to be compared or shown."""

    found: Mapping[str, str]
    has_network: bool

    def number(self, name: str) -> int:
        """Returns a number, or a large one if there is none: then nothing is said of it."""
        text = self.found.get(name, "")
        return int(text) if re.fullmatch("[0-9]{1,15}", text) else 10**15


@command_of("code")
def code_command(name: str, directory: str | None, editor: str, check: bool) -> int:
    """Open VS Code, or another editor, on a sandbox.

    The editor connects by SSH, to the host NAME.qs: run `quicksand-tui ssh-config --install` once
    before. It will put a server of its own into the guest, so what the guest lacks for that is
    said first. --check does no more than that, and exits with 1 if something is missing.

    VS Code needs its extension "Remote - SSH". JetBrains Gateway is not opened: give it the host
    NAME.qs in its own window.
    """

    words: list[str] = []

    async def main(signals: Signals) -> int:
        with attached(name) as sandbox:
            guest = await look_at(sandbox)
            place = directory or home_in((await sandbox.find_user()).home)
            words.extend(command_of_editor(editor, sandbox.name, place))
        lacking = list(problems(guest, editor))
        for line in (*lacking, *advice(guest, editor)):
            say(line)
        return Exit.FAILURE if lacking else Exit.OK

    code = run_async(main)
    if check:
        click.echo(clean(shlex.join(words)))
        return code
    host = f"{name}{SUFFIX}"
    if not is_installed():
        raise StateError(
            f"{editor} cannot find {host} yet",
            hint="`quicksand-tui ssh-config --install` adds all sandboxes to ~/.ssh/config",
        )
    prepare_files()
    if (program := shutil.which(words[0])) is None:
        raise HostError(
            f"there is no {words[0]} on this host",
            hint=f"in an editor's own window the host is {host}",
        )
    sys.stdout.flush()
    # What the guest lacks has been said; whether the editor does without, it knows better.
    os.execv(program, words)  # noqa: S606


def home_in(told: str) -> str:
    """Returns the home that a guest tells; / if it is no path that an editor could be given. The
    guest says what it likes, and a word such as --install-extension=… is an option of the editor's,
    which runs on this host."""
    return told if told.startswith("/") and told.isprintable() else "/"


def command_of_editor(editor: str, name: str, directory: str) -> list[str]:
    """Returns the command that opens a directory of a sandbox, which is below / whatever it begins
    with: nothing of it is an option."""
    host = name + SUFFIX
    place = directory if directory.startswith("/") else f"/{directory}"
    if editor == "zed":
        # Of a URL a path is a part: what would end it, or mean something else there, is escaped.
        return ["zed", f"ssh://{host}{quote(place, errors='surrogateescape')}"]
    return ["code", "--remote", f"ssh-remote+{host}", place]


async def look_at(sandbox: Sandbox) -> Guest:
    """Asks the guest. Raises QuicksandError."""
    result = await sandbox.execute(LOOK, timeout=20)
    found = {}
    for line in result.stdout.splitlines()[:FIELD_MAX]:
        key, _, value = line.partition(" ")
        found[key] = clean(value.strip())[:FIELD_MAX]
    return Guest(found, sandbox.config.network_mode is NetworkMode.FULL)


def problems(guest: Guest, editor: str) -> Iterator[str]:
    """Yields what keeps the editor's server from running."""
    arch = guest.found.get("arch", "")
    if arch not in ("x86_64", "aarch64"):
        yield f"the editor has no server for a guest of {arch or 'an unknown processor'}"
    if editor != "code":
        return
    glibc = guest.found.get("glibc", "")
    match = re.fullmatch(r"([0-9]{1,3})\.([0-9]{1,3}).*", glibc)
    if match is None:
        yield (
            "the guest has no glibc: on Alpine, VS Code's server needs "
            "`apk add bash gcompat libstdc++`"
        )
    elif (int(match[1]), int(match[2])) < GLIBC_LEAST:
        least = ".".join(map(str, GLIBC_LEAST))
        yield f"the guest has glibc {glibc}; VS Code's server needs {least}"
    for program in ("bash", "tar"):
        if program not in guest.found:
            yield f"the guest has no {program}, which VS Code's server is unpacked with"
    if guest.number("disk") < DISK_KIB_LEAST:
        yield f"the guest's disk has {guest.number('disk') // 1024} MiB left; the server takes 400"


def advice(guest: Guest, editor: str) -> Iterator[str]:
    """Yields what helps, and does not have to be."""
    if editor == "code" and not (guest.has_network and {"curl", "wget"} & set(guest.found)):
        why = "has neither curl nor wget" if guest.has_network else "has no network"
        yield (
            f'the guest {why}: put `"remote.SSH.localServerDownload": "always"` into VS Code\'s '
            "settings, which has it upload the server"
        )
    if guest.number("memory") < MEMORY_KIB_LEAST:
        mib = guest.number("memory") // 1024
        yield f"the guest has {mib} MiB of memory; an editor's server wants 1 GiB, better 2"
