"""`quicksand-tui api`: serves E2B's HTTP API, and manages the keys to it."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from quicksand import ConfigError, HostError, ImageNotFound, SandboxConfig
from quicksand.extending import build_if_missing, paths

from quicksand_e2b.keys import Keys
from quicksand_e2b.making import BASE, Usual
from quicksand_e2b.places import api_dir
from quicksand_tui.plugins import (
    Exit,
    command_of,
    complain,
    parse_address,
    print_json,
    print_table,
    run_async,
    say,
)

if TYPE_CHECKING:
    from quicksand_tui.plugins import Signals


RESOLVE_S = 3.0
"""Seconds to look up a name below localhost, which no other host is asked for."""


@command_of("api")
@click.pass_context
def api_command(
    ctx: click.Context,
    listen: str,
    tls: str | None,
    image: str,
    memory: str,
    cpus: int,
    fleet: bool,
    internet: bool,
    called: tuple[str, ...],
) -> int:
    """Serve E2B's HTTP API over sandboxes of this machine, or of a fleet, until Ctrl-C.

    Programs that use E2B's SDK run unchanged with the variables that `api env` prints:

    \b
    quicksand-tui api &
    eval $(quicksand-tui api env)
    python quick_start.py

    It needs the extra: pip install 'quicksand-tui[api]'. Sandboxes outlive it: the next server
    takes them over, and ends those whose time is up by then. While no server runs, none of them is
    ended.

    With --fleet they are placed on the hosts of the fleet that is up (`fleet up`), or of the
    config's table [hosts]. A host that is away keeps its sandboxes: requests for them get 503 until
    it is back.
    """
    if ctx.invoked_subcommand is not None:
        return Exit.OK
    host, port = parse_address(listen)
    config = SandboxConfig.parse({"image": image, "memory": memory, "cpus": cpus})
    try:
        from quicksand_e2b.server import Options, serving  # noqa: PLC0415
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
    options = Options(host=host, port=port, usual=usual, names=names, tls=secure, fleet=fleet)
    Keys(api_dir(paths())).require()

    async def main(signals: Signals) -> int:
        if not fleet:
            await _look_for_image(image)
        async with serving(paths(), options, say) as bound:
            _say_where(*bound, tls)
            await asyncio.Event().wait()
        return Exit.OK

    return run_async(main)


async def _look_for_image(image: str) -> None:
    """Tells that an image is missing, before anybody asks for it."""
    try:
        await build_if_missing(image, paths(), build=False)
    except ImageNotFound as error:
        complain(error, about=f"the template {BASE}")


def _say_where(host: str, port: int, tls: str | None) -> None:
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"listening at http://{shown}:{port}; for programs that use it:")
    click.echo(f"eval $(quicksand-tui api env --listen {shown}:{port})")
    if tls is not None:
        click.echo(f"or by TLS: eval $(quicksand-tui api env --tls {tls})")


@command_of("api env")
def env(listen: str, tls: str | None, owner: str) -> None:
    """Print the variables that have E2B's SDK use this server.

    They are for `eval $(quicksand-tui api env)`. What is printed has a key: whoever knows it may
    use the server. With --tls the SDK finds the server by a name below qs.localhost, and trusts our
    certificates instead of the usual ones.
    """
    key = Keys(api_dir(paths())).require(owner)
    if tls is not None:
        from quicksand_e2b.tls import DOMAIN, Certificates  # noqa: PLC0415

        authority = Certificates(api_dir(paths())).require_authority()
        click.echo(f"export E2B_API_KEY={key.key}")
        click.echo(f"export E2B_DOMAIN={DOMAIN}:{parse_address(tls)[1]}")
        click.echo(f"export SSL_CERT_FILE={shlex.quote(str(authority))}")
        if not _resolves(f"x.{DOMAIN}"):
            say(
                f"this host does not resolve names below {DOMAIN}: the SDK does so by itself; for "
                "other programs that open what get_host() gives, install libnss-myhostname (its "
                "package has this name on Debian and Ubuntu), or use http://…/ports/PORT-ID/"
            )
        return
    host, port = parse_address(listen)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not bound here
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    click.echo(f"export E2B_API_KEY={key.key}")
    click.echo(f"export E2B_API_URL={url}")
    click.echo(f"export E2B_SANDBOX_URL={url}")


def _resolves(name: str) -> bool:
    """Whether programs of this host find a name, or True if that is not known."""
    try:
        # Not in this process: a resolver may take long, and cannot be interrupted.
        found = subprocess.run(
            ["getent", "ahosts", name], capture_output=True, timeout=RESOLVE_S, check=False
        )
    except OSError:
        return True
    except subprocess.TimeoutExpired:
        return False
    return found.returncode == 0


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
