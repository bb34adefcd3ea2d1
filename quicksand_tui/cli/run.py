"""`quicksand-tui run, clone`: starts a new sandbox with a command or a shell in it; makes copies of
one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from quicksand_tui.cli.commands import command_of
from quicksand_tui.cli.machine import machine_options

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.relay import Wish
    from quicksand_tui.cli.runner import Signals


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
    remove: bool,
    argv: tuple[str, ...],
    interactive: bool,
    tty: bool,
    env: dict[str, str],
    user: str | None,
    cwd: str | None,
    timeout: float | None,
    detach_keys: str,
    as_json: bool,
) -> int:
    """Start a sandbox and run a command or a shell in it.

    IMAGE is an image, one of your saves, or a path to one. ./NAME may also be a save in
    ./.quicksand that was made elsewhere, such as one from a cloned repository. Such a save gets the
    usual network and no ports, whatever it asks for, unless you give them or --trust it.

    On a terminal, a missing image is built first.

    The first start of a machine boots it and has a template made; later starts continue from that
    in a fraction of the time (`images warm` makes it beforehand), or take over a machine that waits
    for them (QUICKSAND_SPARES=off does without those).

    With COMMAND, its exit code becomes the exit code here; without it, on a terminal, you get a
    shell in the sandbox. Then the sandbox is stopped, and removed unless it has a name. With
    --detach it stays, and COMMAND keeps running in it.
    """
    from quicksand_tui.cli.options import parse_keys
    from quicksand_tui.cli.relay import Wish
    from quicksand_tui.cli.runner import run_in_sandbox

    if save is not None and detach:
        raise click.UsageError("--save and --detach do not go together: `quicksand-tui save` later")
    in_terminal = _decide_terminal(argv, tty=tty, detach=detach, as_json=as_json)
    plan = _Plan(
        image=image,
        name=name,
        ephemeral=True if remove else None,
        options=machine,
        trust=trust,
        build=False if as_json and build is None else build,
        warm=not cold,
        save=save,
        detach=detach,
        in_terminal=in_terminal,
        keys=parse_keys(detach_keys),
        as_json=as_json,
        wish=Wish(
            argv=argv,
            env=env,
            user=user,
            cwd=cwd,
            timeout=timeout,
            stdin=interactive and not in_terminal,
        ),
    )

    async def main(signals: Signals) -> int:
        return await _run(plan, signals)

    return run_in_sandbox(main)


def _decide_terminal(argv: tuple[str, ...], *, tty: bool, detach: bool, as_json: bool) -> bool:
    """Returns whether the command runs in a terminal. Raises UsageError for options that exclude
    each other."""
    from quicksand_tui.cli.opening import has_terminal

    if detach:
        if tty:
            raise click.UsageError("--detach and --tty do not go together")
        return False
    if as_json and (tty or not argv):
        raise click.UsageError("--json needs a COMMAND without --tty, or --detach")
    if not argv and not tty and not has_terminal():
        raise click.UsageError(
            "there is no terminal for a shell: give a command after --, or --detach"
        )
    if tty or not argv:
        from quicksand_tui.cli.terminal import require_terminal

        require_terminal()
        return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    image: str
    name: str | None
    ephemeral: bool | None
    options: dict[str, Any]
    trust: bool
    build: bool | None
    warm: bool
    save: str | None
    detach: bool
    in_terminal: bool
    keys: bytes
    as_json: bool
    wish: Wish


async def _run(plan: _Plan, signals: Signals) -> int:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.bundles import save_store
    from quicksand_tui.cli.output import say
    from quicksand_tui.cli.progress import shown
    from quicksand_tui.cli.standing import StartProgress
    from quicksand_tui.model.text import clean

    progress = StartProgress(plan.name or plan.image)
    sandbox = Sandbox(
        image=plan.image,
        name=plan.name,
        ephemeral=plan.ephemeral,
        warm=plan.warm,
        trust=plan.trust,
        build=plan.build,
        progress_callback=progress.stage,
        **plan.options,
    )
    told = sandbox.notices
    for notice in told:
        say(clean(notice))
    if plan.save is not None:
        sandbox.save_on_stop(plan.save, save_store(None))
    async with shown(progress.look):
        await sandbox.start()
    _say_notices(sandbox, but=told)
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


def _say_notices(sandbox: Sandbox, *, but: tuple[str, ...] = ()) -> None:
    """Says what the sandbox's start could not do, without what was said already."""
    from quicksand_tui.cli.output import say
    from quicksand_tui.model.text import clean

    for notice in sandbox.notices:
        if notice not in but:
            say(f"{sandbox.name}: {clean(notice)}")


async def _use(sandbox: Sandbox, plan: _Plan, signals: Signals) -> tuple[int, bool]:
    """Runs what the user asked for; returns the exit code, and whether the sandbox is to stay."""
    from quicksand_tui.cli import relay

    if plan.in_terminal:
        from quicksand_tui.cli.output import Exit
        from quicksand_tui.cli.shells import Left, run_in_terminal, say_left

        try:
            return await run_in_terminal(sandbox, plan.wish, plan.keys, signals), False
        except Left as left:
            sandbox.detach()
            say_left(sandbox, left.session)
            return Exit.OK, True
    if plan.as_json:
        facts = start_facts(sandbox)
        return await relay.collect_command(sandbox, plan.wish, signals, **facts), False
    return await relay.run_command(sandbox, plan.wish, signals), False


async def _leave_running(sandbox: Sandbox, plan: _Plan) -> int:
    from quicksand_tui.cli.output import Exit, print_json
    from quicksand_tui.cli.relay import starting

    facts = start_facts(sandbox)
    if plan.wish.argv:
        with starting():
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
    from quicksand.records.config import NetworkMode

    mode = sandbox.config.network_mode
    parts = [] if mode is NetworkMode.MOUNTS_ONLY else [f"network {mode.value}"]
    parts += [f"127.0.0.1:{host} -> {guest}" for guest, host in sandbox.port_forwards.items()]
    parts += [f"agent {sandbox.agent_url}"] if sandbox.agent_url else []
    return ", ".join(parts)


def start_facts(sandbox: Sandbox) -> dict[str, Any]:
    """Returns the fields of `--json` for a sandbox that this process has started."""
    timing = sandbox.boot_timing
    return {
        "name": sandbox.name,
        "id": sandbox.id,
        "accel": sandbox.accelerator,
        "network": sandbox.config.network_mode.value,
        "ports": [{"host": h, "guest": g} for g, h in sandbox.port_forwards.items()],
        "agent_url": sandbox.agent_url,
        "boot_s": round(timing.total_s, 3) if timing is not None else None,
        "boot_mode": timing.mode if timing is not None else None,
        "boot_note": (timing.note or None) if timing is not None else None,
        "notices": list(sandbox.notices),
    }


async def _stop(sandbox: Sandbox) -> None:
    from quicksand_tui.cli.progress import shown
    from quicksand_tui.cli.written import say_written

    say_written(sandbox)
    async with shown(f"{sandbox.name}: stopping"):
        await sandbox.stop()


@command_of("clone")
def clone_command(
    name: str,
    count: int,
    at: str | None,
    new_name: str | None,
    mounts: str | None,
    concurrency: int | None,
    as_json: bool,
) -> int:
    """Copy a sandbox as it is now, with its running processes.

    A clone has the same memory, processes and disk, but its own name, addresses, host keys and
    forwarded ports. It keeps running when this command ends. Clones of a sandbox NAME are called
    NAME-1, NAME-2 and so on, unless --name is given; clones of one without a name have none. The
    source stands still for a moment, as for a checkpoint. Clones of a stopped sandbox boot from its
    disk. Clones have no mounts unless --mounts adds them. If one of them fails, none is kept.
    """
    if new_name is not None and count > 1:
        raise click.UsageError("--name goes with one clone: several need a name each")

    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.output import Exit, print_json
    from quicksand_tui.cli.progress import shown
    from quicksand_tui.cli.runner import run_async

    what = "a clone" if count == 1 else f"{count} clones"

    async def main(signals: Signals) -> int:
        source = Sandbox.open(name)
        try:
            async with shown(f"{name}: making {what}"):
                clones = await source.clone(
                    count,
                    concurrency=concurrency,
                    at=at,
                    names=None if new_name is None else [new_name],
                    mounts=mounts,
                )
                # This comes before anything else is awaited, so that Ctrl-C finds all clones or
                # none.
                facts = [start_facts(clone) for clone in clones]
                _release(clones)
        finally:
            source.close()
        if as_json:
            print_json(facts)
        else:
            for clone in clones:
                _say_notices(clone)
                print(clone.name, flush=True)
        return Exit.OK

    return run_async(main)


def _release(clones: list[Sandbox]) -> None:
    """Lets the clones run on after this process ends."""
    for clone in clones:
        clone.detach()
    for clone in clones:
        clone.close()
