"""`quicksand-tui api`: serves E2B's HTTP API, and manages the keys to it."""

from __future__ import annotations

import asyncio
import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from quicksand.base.errors import ConfigError, HostError, ImageNotFound
from quicksand.base.paths import paths
from quicksand.life.image_building import build_if_missing
from quicksand.records.config import SandboxConfig

from quicksand_tui.api.keys import Keys
from quicksand_tui.api.making import BASE, Usual
from quicksand_tui.api.places import api_dir
from quicksand_tui.cli.addresses import parse_address
from quicksand_tui.cli.commands import command_of
from quicksand_tui.cli.output import Exit, complain, print_json, print_table, say
from quicksand_tui.cli.runner import run_async

if TYPE_CHECKING:
    from quicksand_tui.cli.runner import Signals


@command_of("api")
@click.pass_context
def api_command(
    ctx: click.Context,
    listen: str,
    tls: str | None,
    image: str,
    memory: str,
    cpus: int,
    internet: bool,
    called: tuple[str, ...],
) -> int:
    """Serve E2B's HTTP API over sandboxes of this machine, until Ctrl-C.

    Programs that use E2B's SDK run unchanged with the variables that `api env` prints:

    \b
    quicksand-tui api &
    eval $(quicksand-tui api env)
    python quick_start.py

    It needs the extra: pip install 'quicksand-tui[api]'. Sandboxes outlive it: the next server
    takes them over, and ends those whose time is up by then. While no server runs, none of them is
    ended.
    """
    if ctx.invoked_subcommand is not None:
        return Exit.OK
    host, port = parse_address(listen)
    config = SandboxConfig.parse({"image": image, "memory": memory, "cpus": cpus})
    try:
        from quicksand_tui.api.server import Options, serving  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise HostError(
            "the API server needs aiohttp, which is not installed",
            hint="pip install 'quicksand-tui[api]'",
        ) from error
    usual = Usual(
        image=image, memory_mb=config.memory_bytes >> 20, cpus=config.cpus, internet=internet
    )
    names = frozenset(name.lower() for name in called)
    secure = parse_address(tls) if tls is not None else None
    options = Options(host=host, port=port, usual=usual, names=names, tls=secure)
    Keys(api_dir(paths())).require()

    async def main(signals: Signals) -> int:
        try:
            await build_if_missing(image, paths(), build=False)
        except ImageNotFound as error:
            complain(error, about=f"the template {BASE}")
        async with serving(paths(), options, say) as (bound_host, bound_port):
            shown = f"[{bound_host}]" if ":" in bound_host else bound_host
            click.echo(f"listening at http://{shown}:{bound_port}; for programs that use it:")
            click.echo(f"eval $(quicksand-tui api env --listen {shown}:{bound_port})")
            if tls is not None:
                click.echo(f"or by TLS: eval $(quicksand-tui api env --tls {tls})")
            await asyncio.Event().wait()
        return Exit.OK

    return run_async(main)


@command_of("api env")
def env(listen: str, tls: str | None, owner: str) -> None:
    """Print the variables that have E2B's SDK use this server, for `eval $(quicksand-tui api env)`.

    What is printed has a key: whoever knows it may use the server. With --tls the SDK finds the
    server by a name below qs.localhost, and trusts our certificates instead of the usual ones.
    """
    key = Keys(api_dir(paths())).require(owner)
    if tls is not None:
        from quicksand_tui.api.tls import DOMAIN, Certificates  # noqa: PLC0415

        authority = Certificates(api_dir(paths())).require_authority()
        click.echo(f"export E2B_API_KEY={key.key}")
        click.echo(f"export E2B_DOMAIN={DOMAIN}:{parse_address(tls)[1]}")
        click.echo(f"export SSL_CERT_FILE={shlex.quote(str(authority))}")
        return
    host, port = parse_address(listen)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not bound here
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    click.echo(f"export E2B_API_KEY={key.key}")
    click.echo(f"export E2B_API_URL={url}")
    click.echo(f"export E2B_SANDBOX_URL={url}")


@command_of("api keys")
def keys_command(add: str | None, remove: str | None, as_json: bool) -> None:
    """List whose keys there are, or add or remove one.

    Each owner has one key and sees the sandboxes that were made with it. `api env --owner OWNER`
    prints it. A server that runs takes a change over at once.
    """
    if add is not None and remove is not None:
        raise ConfigError("--add and --remove do not go together")
    keys = Keys(api_dir(paths()))
    if add is not None:
        keys.add(add)
        say(f"`quicksand-tui api env --owner {add}` prints the key")
        return
    if remove is not None:
        keys.remove(remove)
        return
    found = keys.list()
    if as_json:
        print_json([{"owner": key.owner, "created": key.created} for key in found])
        return
    shown = [
        (key.owner, datetime.fromtimestamp(key.created, UTC).isoformat(timespec="seconds"))
        for key in found
    ]
    print_table(("OWNER", "CREATED"), shown)
