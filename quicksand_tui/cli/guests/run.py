"""`quicksand-tui run`: starts a new sandbox with a command or a shell in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import quicksand
from quicksand.base.paths import paths
from quicksand.life import machinery
from quicksand.records.config import NetworkMode
from quicksand.sandbox import Sandbox

from quicksand_tui.cli.click_commands import command_of, machine_options, parse_keys
from quicksand_tui.cli.guests import executing
from quicksand_tui.cli.guests.executing import Wish
from quicksand_tui.cli.host_choice import LOCAL, has_terminal
from quicksand_tui.cli.output import Exit, print_json, say, say_notices
from quicksand_tui.cli.progress_display import StartProgress, shown
from quicksand_tui.cli.runner import Signals, chosen_host, run_in_sandbox
from quicksand_tui.model.text import clean
from quicksand_tui.verbs.launching import start_facts
from quicksand_tui.verbs.written import written_in


@command_of("run")
@machine_options()
def run_command(
    image: str,
    name: str | None,
    machine: dict[str, Any],
    trust: bool,
    build: bool | None,
    cold: bool,
    save: str | None,
    detach: bool,
    fleet: bool,
    restart_elsewhere: bool,
    remove: bool,
    argv: tuple[str, ...],
    interactive: bool,
    tty: bool,
    env: dict[str, str],
    user: str | None,
    cwd: str | None,
    timeout: float | None,
    entrypoint: bool,
    detach_keys: str,
    as_json: bool,
) -> int:
    """Start a sandbox and run a command or a shell in it.

    IMAGE is an image, one of your saves, or a path to one or to a bundle. ./NAME may also be a save
    in ./.quicksand that was made elsewhere, such as one from a cloned repository. Such a save gets
    the usual network and no ports, whatever it asks for, unless you give them or --trust it.

    On a terminal, a missing image is built first, or installed if it has no recipe and is a
    published one. A bundle (.quicksand), which may hold an image or a save, is unpacked on first
    use.

    The first start of a machine boots it and has a template made; later starts continue from that
    in a fraction of the time (`images warm` makes it beforehand), or take over a machine that waits
    for them (QUICKSAND_SPARES=off does without those).

    With COMMAND, its exit code becomes the exit code here; without it, on a terminal, you get a
    shell in the sandbox. Then the sandbox is stopped, and removed unless it has a name. With
    --detach it stays, and COMMAND keeps running in it.

    An image that was made of a container image may have a user, a directory and variables for its
    commands, which --user, --cwd and --env replace. With --entrypoint its own command is run, with
    COMMAND in place of its own words.
    """
    wish = Wish(argv, env, user, cwd, timeout, interactive, entrypoint)
    start = {**machine, "image": image, "name": name, "trust": trust, "warm": not cold}
    start |= {"ephemeral": remove or None, "build": False if as_json and build is None else build}
    plan = _Plan(
        start=start,
        save=save,
        detach=detach,
        fleet=fleet,
        restart=restart_elsewhere,
        in_terminal=_decide_terminal(wish, tty=tty, detach=detach, save=save, as_json=as_json),
        keys=parse_keys(detach_keys),
        as_json=as_json,
        wish=wish,
    )
    return run_in_sandbox(lambda signals: _run(plan, signals))


def _decide_terminal(
    wish: Wish, *, tty: bool, detach: bool, save: str | None, as_json: bool
) -> bool:
    """Returns whether the command runs in a terminal. Raises UsageError for contradictions."""
    if save is not None and detach:
        raise click.UsageError("--save and --detach do not go together: `quicksand-tui save` later")
    if detach:
        if tty:
            raise click.UsageError("--detach and --tty do not go together")
        return False
    if as_json and (tty or not wish.is_command):
        raise click.UsageError("--json needs a COMMAND without --tty, or --detach")
    if not wish.is_command and not tty and not has_terminal():
        raise click.UsageError(
            "there is no terminal for a shell: give a command after --, or --detach"
        )
    if tty or not wish.is_command:
        from quicksand_tui.cli.guests.terminal import require_terminal  # noqa: PLC0415

        require_terminal()
        return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    start: dict[str, Any]
    """The keywords of `Sandbox`."""
    save: str | None
    detach: bool
    fleet: bool
    restart: bool
    in_terminal: bool
    keys: bytes
    as_json: bool
    wish: Wish

    def __post_init__(self) -> None:
        """Checks the options. Raises UsageError for options that exclude each other."""
        start = self.start
        if self.restart and not (self.fleet and start["name"] and not start["ephemeral"]):
            raise click.UsageError(
                "--restart-elsewhere needs --fleet and --name, and excludes --rm"
            )
        if self.fleet and self.save is not None:
            raise click.UsageError("--save does not go with --fleet: its machine has the saves")


async def _run(plan: _Plan, signals: Signals) -> int:
    if plan.fleet:
        async with quicksand.Fleet.open() as fleet:
            return await _run_on({"fleet": fleet, "restart": plan.restart}, plan, signals)
    async with chosen_host() as host:
        place = {} if host is None else {"host": host, "save": plan.save}
        return await _run_on(place, plan, signals)


async def _run_on(place: dict[str, Any], plan: _Plan, signals: Signals) -> int:
    """Runs the plan on a machine; ``place`` has the keywords of `Sandbox` for that."""
    progress = StartProgress(plan.start["name"] or plan.start["image"])
    sandbox = Sandbox(progress_callback=progress.stage, **place, **plan.start)
    told = sandbox.notices
    for notice in told:
        say(clean(notice))
    if plan.save is not None and "host" not in place:
        sandbox.save_on_stop(plan.save, machinery.SaveStore(paths().saves))
    try:
        async with shown(progress.look):
            await sandbox.start()
    except BaseException:
        sandbox.close()
        raise
    say_notices(sandbox.name, sandbox.notices, but=told)
    if reach := describe_reach(sandbox):
        say(f"{sandbox.name}: {reach}")
    stays = False
    try:
        if plan.detach:
            code, stays = await _leave_running(sandbox, plan), True
        else:
            code, stays = await _use(sandbox, plan, signals)
    finally:
        if stays:
            sandbox.close()
        elif not sandbox.abandon():
            await _stop(sandbox)
    return code


async def _use(sandbox: Sandbox, plan: _Plan, signals: Signals) -> tuple[int, bool]:
    """Runs the user's command; returns the exit code, and whether the sandbox is to stay."""
    if plan.in_terminal:
        from quicksand_tui.cli.guests.terminal import Left, run_in_terminal, say_left  # noqa: PLC0415

        try:
            return await run_in_terminal(sandbox, plan.wish, plan.keys, signals), False
        except Left as left:
            sandbox.detach()
            say_left(sandbox, left.session)
            return Exit.OK, True
    if plan.as_json:
        facts = start_facts(sandbox)
        return await executing.collect_command(sandbox, plan.wish, signals, **facts), False
    return await executing.run_command(sandbox, plan.wish, signals), False


async def _leave_running(sandbox: Sandbox, plan: _Plan) -> int:
    facts = start_facts(sandbox)
    if plan.wish.is_command:
        with executing.starting():
            running = await sandbox.spawn(
                list(plan.wish.argv),
                timeout=plan.wish.timeout,
                detach=True,
                **plan.wish.keywords(),
            )
        facts["pid"] = running.pid
    sandbox.detach()
    if plan.as_json:
        print_json(facts)
    else:
        print(sandbox.name, flush=True)
    return Exit.OK


def describe_reach(sandbox: Sandbox) -> str:
    """Describes the network, forwarded ports and the agent's HTTP; "" if all are at their
    defaults."""
    mode = sandbox.config.network_mode
    parts = [] if mode is NetworkMode.MOUNTS_ONLY else [f"network {mode.value}"]
    parts += [f"127.0.0.1:{host} -> {guest}" for guest, host in sandbox.port_forwards.items()]
    parts += [
        f"127.0.0.1:{host} -> {guest}/udp" for guest, host in sandbox.udp_port_forwards.items()
    ]
    parts += [f"agent {sandbox.agent_url}"] if sandbox.agent_url else []
    return ", ".join(parts)


async def _stop(sandbox: Sandbox) -> None:
    if sandbox.host != LOCAL and sandbox.active_mounts:
        await sandbox.look()
    for line in written_in(sandbox):
        say(line)
    async with shown(f"{sandbox.name}: stopping"):
        await sandbox.stop()
