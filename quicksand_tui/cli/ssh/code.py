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
from quicksand.base.errors import ConfigError, HostError, StateError
from quicksand.records.config import NetworkMode

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.hosts.hosts import find_destination
from quicksand_tui.cli.output import Exit, say
from quicksand_tui.cli.runner import Signals, reached, run_async
from quicksand_tui.cli.ssh.ssh_config import find_typed, is_installed, prepare_files, there
from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

CODE, ZED, JETBRAINS = "code", "zed", "jetbrains"

GLIBC_LEAST = (2, 28)
"""The oldest C library for which VS Code's server is built ("Remote Development with Linux" of its
documentation)."""

GIB = 1 << 30

MEMORY_LEAST = {CODE: 1 * GIB, JETBRAINS: 2 * GIB}
"""The memory that VS Code's server ("System requirements" of Remote-SSH) and the back end of
JetBrains want. Zed names no amount."""

DISK_KIB_LEAST = 500_000
"""The least free disk in KiB: the unpacked server takes some 400 MB, and extensions more."""

INSTALL = "`quicksand-tui ssh-config --install` adds all sandboxes to ~/.ssh/config"

FIELD_MAX = 64

LOOK = """
echo "os $(uname -s)"
echo "arch $(uname -m)"
echo "glibc $(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //')"
echo "disk $(df -Pk . | sed -n '2s/^[^ ]* *[0-9]* *[0-9]* *\\([0-9]*\\) .*/\\1/p')"
for program in bash tar curl wget; do
    command -v $program >/dev/null 2>&1 && echo "$program yes"
done
exit 0
"""
"""A script that tells the conditions for an editor's server in the guest."""


class Guest(NamedTuple):
    """A guest's report on itself. All of it is only words to be compared or shown."""

    found: Mapping[str, str]
    has_network: bool
    memory: int
    """Bytes of the machine's memory; the guest's own total is some less."""

    def number(self, name: str) -> int:
        """Returns a number, or a large one if there is none: then nothing is told of it."""
        text = self.found.get(name, "")
        return int(text) if re.fullmatch("[0-9]{1,15}", text) else 10**15


@command_of("code")
def code_command(name: str, directory: str | None, editor: str, check: bool) -> int:
    """Open VS Code, or another editor, on a sandbox.

    The editor connects by SSH, to the host NAME.qs: run `quicksand-tui ssh-config --install` once
    before. It will put a server of its own into the guest, so what the guest lacks for that is
    said first. --check does no more than that, and exits with 1 if something is missing.

    VS Code needs its extension "Remote - SSH". JetBrains Gateway (--editor jetbrains) is not
    opened: it is said what the guest lacks for it, and which host to give it in its own window.
    """
    return open_editor(name, directory, editor, check)


def open_editor(
    name: str, directory: str | None, editor: str, check: bool, *, machine: str = ""
) -> int:
    """Opens an editor on a sandbox of ``machine``, as `--host` takes it; "" leaves that to the
    name. Raises QuicksandError."""
    found = there(name, machine) if machine else find_typed(name)
    host = found.word
    if found.host and not found.has_word:
        raise ConfigError(
            f"an editor cannot be told of {found.name} on {found.host}: {host} does not lead there",
            hint="give the machine a name: `quicksand-tui hosts add NAME ssh://USER@HOST`",
        )
    words: list[str] = []

    async def main(signals: Signals) -> int:
        way = find_destination(found.host) if found.host else None
        async with reached(way, found.name) as sandbox:
            guest = await look_at(sandbox)
            place = directory or home_in((await sandbox.find_user()).home)
            if editor != JETBRAINS:
                words.extend(command_of_editor(editor, host, place))
        lacking = list(problems(guest, editor))
        for line in (*lacking, *advice(guest, editor)):
            say(line)
        return Exit.FAILURE if lacking else Exit.OK

    code = run_async(main)
    if editor == JETBRAINS:
        say(f"connect with JetBrains Gateway, in its own window, by SSH to the host {host}")
        if not is_installed():
            say(INSTALL)
        return code
    if check:
        click.echo(clean(shlex.join(words)))
        return code
    if not is_installed():
        raise StateError(
            f"{editor} cannot find {host} yet",
            hint=INSTALL,
        )
    prepare_files()
    if (program := shutil.which(words[0])) is None:
        raise HostError(
            f"there is no {words[0]} on this host",
            hint=f"in an editor's own window the host is {host}",
        )
    sys.stdout.flush()
    # The guest's lacks have been told; the editor knows better whether it does without.
    os.execv(program, words)  # noqa: S606


def home_in(told: str) -> str:
    """Returns the home that a guest tells; / if it is no path that an editor could be given. The
    guest can say anything, and a word such as --install-extension=… is an option of the editor's,
    which runs on this host."""
    return told if told.startswith("/") and told.isprintable() else "/"


def command_of_editor(editor: str, host: str, directory: str) -> list[str]:
    """Returns the command that opens a directory of a sandbox. The directory is below /, whatever
    its first character: no part of it is an option."""
    place = directory if directory.startswith("/") else f"/{directory}"
    if editor == ZED:
        # The path is a part of a URL: characters that would end it, or mean something else there,
        # are escaped.
        return [ZED, f"ssh://{host}{quote(place, errors='surrogateescape')}"]
    return [CODE, "--remote", f"ssh-remote+{host}", place]


async def look_at(sandbox: Sandbox) -> Guest:
    """Asks the guest for its facts. Raises QuicksandError."""
    result = await sandbox.execute(LOOK, timeout=20)
    found = {}
    for line in result.stdout.splitlines()[:FIELD_MAX]:
        key, _, value = line.partition(" ")
        found[key] = clean(value.strip())[:FIELD_MAX]
    config = sandbox.config
    return Guest(found, config.network_mode is NetworkMode.FULL, config.memory_bytes)


def problems(guest: Guest, editor: str) -> Iterator[str]:
    """Yields the reasons that keep the editor's server from running."""
    arch = guest.found.get("arch", "")
    if arch not in ("x86_64", "aarch64"):
        yield f"the editor has no server for a guest of {arch or 'an unknown processor'}"
    if editor != CODE:
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
    """Yields advice that helps, but is not necessary."""
    if editor == CODE and not (guest.has_network and {"curl", "wget"} & set(guest.found)):
        why = "has neither curl nor wget" if guest.has_network else "has no network"
        yield (
            f'the guest {why}: put `"remote.SSH.localServerDownload": "always"` into VS Code\'s '
            "settings, which has it upload the server"
        )
    least = MEMORY_LEAST.get(editor, 0)
    if guest.memory < least:
        wanted = f"{least // GIB} GiB" + (", better 2" if editor == CODE else " or more")
        yield (
            f"the sandbox has {size_text(guest.memory)} of memory; the editor's server wants "
            f"{wanted}: `run --memory 2G` makes one with that"
        )
