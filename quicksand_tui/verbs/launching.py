"""The verbs that start sandboxes: `run` as the app does it, `start`, `clone`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from quicksand.things.save import own_key
from quicksand.things.status import CAN_BE_COPIED, CAN_START

from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.shown_sandboxes import shown
from quicksand_tui.model.text import TITLE_CELLS, clean, clip, sanitise
from quicksand_tui.verbs import lazy_engine
from quicksand_tui.verbs.call import Call, Progress, Report, UsageError, shown_command, stage_text
from quicksand_tui.verbs.checkpoints import newest_automatic
from quicksand_tui.verbs.parameters import (
    BUILD,
    IN_GUEST,
    JSON,
    MACHINE,
    SANDBOX,
    SANDBOXES,
    clones_max,
    concurrency_help,
)
from quicksand_tui.verbs.verb import Asked, Choice, Form, Kind, argument, flag, option, verb

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from quicksand.hosted.remote_host import RemoteHost
    from quicksand.records.machine_options import MachineOption
    from quicksand.sandbox import Sandbox
    from quicksand.things.checkpoint import Checkpoint

    from quicksand_tui.model.keymap import Keymap
    from quicksand_tui.model.specs import NewSpec


def start_facts(sandbox: Sandbox) -> dict[str, Any]:
    """Returns the fields of `--json` for a sandbox that this process has started."""
    timing = sandbox.boot_timing
    return {
        "name": sandbox.name,
        "id": sandbox.id,
        "accel": sandbox.accelerator,
        "network": sandbox.config.network_mode.value,
        "ports": [{"host": h, "guest": g} for g, h in sandbox.port_forwards.items()],
        "udp_ports": [{"host": h, "guest": g} for g, h in sandbox.udp_port_forwards.items()],
        "agent_url": sandbox.agent_url,
        "boot_s": round(timing.total_s, 3) if timing is not None else None,
        "boot_mode": timing.mode if timing is not None else None,
        "boot_note": (timing.note or None) if timing is not None else None,
        "notices": list(sandbox.notices),
    }


STARTED = "started"
NOT_STARTED = "The sandbox did not start"
NOTICE_LIMIT = 300
"""The most characters of a notice that are shown."""
NAME_LIMIT = 63
"""The longest name shown, in characters; the engine's limit for names."""
NAMES_SHOWN = 3


class Started(NamedTuple):
    """The result of a start."""

    notices: tuple[str, ...] = ()
    """The parts that it could not do, in words that are not sanitised."""
    kept: Checkpoint | None = None
    """The checkpoint that keeps the disk from before a start at another one."""


@verb("start",
    SANDBOXES,
    option("--at", Kind.CHECKPOINT, "TAG", "Continue from this checkpoint, with its processes.",
           on_line=True), summary="Start stopped sandboxes again.", states=CAN_START)  # fmt: skip
def start(*, at: str | None = None) -> Call[Started]:
    """Start stopped sandboxes again.

    They get the disks that they had, and keep running when this command ends. With --at, a sandbox
    gets the disk of that checkpoint, and the tree keeps the old one.
    """

    def tell(name: str, started: Started, keymap: Keymap) -> str | None:
        if at is not None and not started.notices:
            return f"{name}: started at {clip(shown(at), TITLE_CELLS)}"
        return told_of(name, started)

    def said(name: str, started: Started) -> Iterator[str]:
        if (kept := started.kept) is not None:
            yield f"the disk as it was is kept as {clean(kept.tag)!r}: `start --at {kept.id}`"

    return Call(
        job=JobVerb.START,
        failed=NOT_STARTED,
        doing="starting",
        done=STARTED,
        open=open_stopped,
        act=lambda sandbox, _: let_go_on(sandbox, at),
        tell=tell,
        said=said,
        notices=lambda name, started: [(name, started.notices)],
    )


def told_of(name: str, started: Started) -> str | None:
    """Returns the notices of a start; None if the sandbox's row says enough."""
    notices = [sanitise(notice, limit=NOTICE_LIMIT) for notice in started.notices]
    return f"{name} is running, but: {'; '.join(notices)}" if notices else None


def open_stopped(name: str, report: Report, host: RemoteHost | None = None) -> Sandbox:
    """Opens a sandbox that is to be started, and reports the stages of the start."""
    report_stage = _stages_to(report, name)
    report(Progress(name))
    return lazy_engine.Sandbox.open(name, progress_callback=report_stage, host=host)


def _stages_to(report: Report, sandbox_id: str) -> Any:
    def take(stage: str, done: int, total: int) -> None:
        if total == lazy_engine.WHOLE:
            report(Progress(sandbox_id, stage_text(stage), share=done / total))
        else:
            report(Progress(sandbox_id, stage_text(stage), done + 1, total))

    return take


async def let_go_on(sandbox: Sandbox, at: str | None = None) -> Started:
    """Starts an open sandbox so that it outlives us."""
    before = set[str]() if at is None else {made.id for made in sandbox.checkpoints()}
    await sandbox.start(at=at)
    sandbox.detach()
    return Started(sandbox.notices, None if at is None else newest_automatic(sandbox, before))


# A new sandbox


@verb("run",
    argument("image", Kind.SOURCE, on_line=True),
    option("--name", Kind.TEXT, "", "Name the sandbox, to keep its disk and start it again later.",
           on_line=True, by_place=True), MACHINE,
    flag("--trust", "Accept the network, ports and QEMU arguments of a save made elsewhere."),
    BUILD,
    flag("--cold", "Boot the guest even if a template could start it faster."),
    option("--save", Kind.TEXT, "SAVE",
           "Save the disk when the sandbox stops; `run SAVE` continues from it."),
    flag("--detach -d", "Leave the sandbox running and print its name."),
    flag("--fleet", "Run it on a machine of the fleet that has room."),
    flag("--restart-elsewhere",
         "Start it on another machine of the fleet if its own is lost, from its last save."),
    flag("--rm --ephemeral", "Remove the sandbox when it stops, even if it has a name.",
         name="remove"), *IN_GUEST, module=".guests.run",
    summary="Start a sandbox and run a command or a shell in it.")  # fmt: skip
def create(spec: NewSpec) -> Call[Started]:
    """Starts a new sandbox, which outlives us. The first report gives its id."""

    async def anywhere(_: str, report: Report, host: RemoteHost | None) -> Started:
        sandbox: Sandbox | None = None

        def progress(stage: str, done: int, total: int) -> None:
            if sandbox is not None:
                _stages_to(report, sandbox.id)(stage, done, total)

        sandbox = lazy_engine.Sandbox(
            # This very save, whatever other saves are called.
            image=own_key(spec.save, spec.host) if spec.save else spec.image,
            name=spec.name,
            build=True,
            host=host,
            progress_callback=progress,
            **machine_keywords(spec),
        )
        try:
            report(Progress(sandbox.id))
            return await let_go_on(sandbox)
        finally:
            sandbox.close()

    return Call(
        job=JobVerb.START,
        failed=f"{spec.name} did not start",
        done=STARTED,
        anywhere=anywhere,
        spec=spec,
        tell=lambda name, started, keymap: told_of(name, started),
    )


def machine_records() -> Mapping[str, MachineOption]:
    """Returns the records of a machine's options by keyword."""
    return {record.keyword: record for record in lazy_engine.options_of(lazy_engine.SandboxConfig)}


def machine_keywords(spec: NewSpec) -> dict[str, Any]:
    """Returns the form's values as keyword arguments of the engine. For a start from a save, the
    engine takes missing values from the save. Raises ConfigError."""
    return {
        keyword: record.parse_text(text)
        for keyword, record in machine_records().items()
        if (text := spec.machine.get(keyword))
    }


def run_command(spec: NewSpec) -> str:
    """Returns the command that starts the same sandbox, quoted for a shell."""
    return shown_command(run_words(spec), spec.host)


def run_words(spec: NewSpec) -> list[str]:
    """Returns the words of that command."""
    image = spec.image or "IMAGE"
    words = ["--name", spec.name or "NAME"]
    for keyword, record in machine_records().items():
        text = spec.machine.get(keyword, "")
        # From a save or a file, a missing option has the value there, so defaults are given too.
        usual = spec.suggested.get(keyword, record.default_text)
        if text and (spec.save or spec.is_file or text != usual):
            words += record.words(text)
    words.append("--detach")
    # A name that begins with a dash must not be taken for an option.
    words = [*words, "--", image] if image.startswith("-") else [image, *words]
    return ["run", *words]


# More of a sandbox


class Clone(NamedTuple):
    """A clone that runs on."""

    name: str
    notices: tuple[str, ...]
    facts: Mapping[str, Any]
    """The fields of `--json`."""


@verb("clone",
    SANDBOX,
    option("-n --count", Kind.COUNT, "N", "Make this many clones.  [default: 1]", default=1,
           least=1, most=clones_max, on_line=True, by_place=True, asked=Asked("How many",
           limit=lambda: len(str(clones_max())))),
    option("--at", Kind.CHECKPOINT, "TAG", "Clone this checkpoint instead of the present state.",
           on_line=True),
    option("--name", Kind.TEXT, "NEW", "Name the clone, if there is only one.", name="new_name"),
    option("--mounts", Kind.CHOICE, "ro|rw",
           "Mount NAME's directories too: read-only, or as NAME has them.  [default: no mounts]",
           choices=("ro", "rw"), asked=Asked("Mounts", of=lambda sandbox: bool(sandbox.mounts),
           choices=(Choice("", "none"), Choice("ro", "read-only"), Choice("rw", "as mounted here",
           "all clones write to the same files")))),
    option("--concurrency", Kind.COUNT, "C", concurrency_help, least=1),
    JSON, summary="Copy a sandbox as it is now, with its running processes.", states=CAN_BE_COPIED,
    form=Form("Clones of {}", "Clone", "makes them"))  # fmt: skip
def clone(
    *,
    count: int = 1,
    at: str | None = None,
    new_name: str | None = None,
    mounts: str | None = None,
    concurrency: int | None = None,
) -> Call[Sequence[Clone]]:
    """Copy a sandbox as it is now, with its running processes.

    A clone has the same memory, processes and disk, but its own name, addresses, host keys and
    forwarded ports. It keeps running when this command ends. Clones of a sandbox NAME are called
    NAME-1, NAME-2 and so on, unless --name is given; clones of one without a name have none. The
    source is paused for a moment, as for a checkpoint. Clones of a stopped sandbox boot from its
    disk. Clones have no mounts unless --mounts adds them. If one of them fails, none is kept.
    """
    if new_name is not None and count > 1:
        raise UsageError("--name goes with one clone: several need a name each")

    async def act(source: Sandbox, _: Report) -> Sequence[Clone]:
        clones = await source.clone(
            count,
            concurrency=concurrency,
            at=at,
            names=None if new_name is None else [new_name],
            mounts=mounts or None,
        )
        # This comes before anything else is awaited, so that a caller who cancels it finds all
        # clones or none.
        made = [Clone(clone.name, clone.notices, start_facts(clone)) for clone in clones]
        for clone in clones:
            clone.detach()
        for clone in clones:
            clone.close()
        return made

    return Call(
        job=JobVerb.CLONE,
        failed="No clone was made",
        stage=f"making {'a clone' if count == 1 else f'{count} clones'}",
        act=act,
        tell=_tell_clones,
        facts=lambda _, clones: [clone.facts for clone in clones],
        lines=lambda _, clones: [clone.name for clone in clones],
        notices=lambda _, clones: [(clone.name, clone.notices) for clone in clones],
    )


def _tell_clones(name: str, clones: Sequence[Clone], keymap: Keymap) -> str:
    names = [sanitise(clone.name, limit=NAME_LIMIT) for clone in clones]
    shown = ", ".join(names[:NAMES_SHOWN]) + (" …" if len(names) > NAMES_SHOWN else "")
    return f"{name}: cloned as {shown}"
