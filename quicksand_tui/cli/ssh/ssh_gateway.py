"""`quicksand-tui ssh-gateway`: the SSH server on a port."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import TYPE_CHECKING

import asyncssh
import click
from quicksand.base.errors import ConfigError, HostError, PortInUseError
from quicksand.base.paths import paths
from quicksand.base.regular import read_file

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.options import parse_address
from quicksand_tui.cli.output import Exit, say
from quicksand_tui.cli.runner import run_async
from quicksand_tui.cli.ssh.ssh_files import key_file, prepare_files, ssh_dir
from quicksand_tui.cli.ssh_server.authorized_keys import read_keys
from quicksand_tui.cli.ssh_server.gateway import Gateway, serve_at
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand_tui.cli.runner import Signals


@command_of("ssh-gateway")
def ssh_gateway_command(listen: str, keys: Path | None) -> int:
    """Serve SSH at a port until Ctrl-C, for machines and clients that cannot run quicksand-tui.

    ADDRESS is HOST:PORT, or PORT alone, at 127.0.0.1. 0.0.0.0 and [::] stand for all addresses. A
    client's user name is the sandbox, or sandbox+user:

    \b
    ssh -p 2222 web@HOST
    ssh -p 2222 web+joe@HOST uname -a

    Only public keys are accepted: those in FILE, one to a line, each with the sandboxes that it
    leads to. A change of FILE counts from the next login on:

    \b
    sandboxes="web,ci-*" ssh-ed25519 AAAA... me@laptop

    Logins, their ends and refusals are logged to stderr.
    """
    host, port = parse_address(listen)
    file = keys if keys is not None else ssh_dir(paths()) / "authorized_keys"
    prepare_files()
    if not file.exists():
        raise ConfigError(
            f"there is no {file}",
            hint='give each key a line: sandboxes="*" and what is in its id_ed25519.pub',
        )
    known = read_keys(file)
    key = asyncssh.import_private_key(read_file(key_file(paths())))

    async def main(signals: Signals) -> int:
        gateway = Gateway(file, say)
        try:
            bound = await serve_at(host, port, key, gateway)
        except OSError as error:
            kind = PortInUseError if error.errno == errno.EADDRINUSE else HostError
            raise kind(f"cannot listen at {listen}: {error.strerror or error}") from error
        shown = f"[{host}]:{bound}"
        count = f"{len(known)} key{'' if len(known) == 1 else 's'}"
        click.echo(f"listening at {shown} for {count} of {clean(file)}")
        click.echo(f"host key {key.get_fingerprint()}; for a known_hosts elsewhere:")
        click.echo(f"{shown} {key.export_public_key().decode().strip()}")
        try:
            await asyncio.Event().wait()
        finally:
            await gateway.end()
        return Exit.OK

    return run_async(main)
