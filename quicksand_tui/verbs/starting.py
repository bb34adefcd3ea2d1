"""Starts sandboxes: `run` as the app does it, `start`, `clone`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.saves import own_key
from quicksand_tui.model.text import TITLE_CELLS, clip, sanitise
from quicksand_tui.verbs import engine
from quicksand_tui.verbs.checkpoints import newest_automatic
from quicksand_tui.verbs.commands import shown_command
from quicksand_tui.verbs.record import HostVerb, Progress, Relayed, Report, SandboxVerb
from quicksand_tui.verbs.stages import stage_text
from quicksand_tui.verbs.start_facts import start_facts

if TYPE_CHECKING:
    from quicksand.records.machine_options import MachineOption
    from quicksand.sandbox import Sandbox
    from quicksand.snapshots.checkpoint import Checkpoint

    from quicksand_tui.model.keymap import Keymap
    from quicksand_tui.model.specs import CloneSpec, NewSpec

STARTED = "started"
NOT_STARTED = "The sandbox did not start"
NOTICE_LIMIT = 300
"""Characters shown of what a start could not do."""
NAME_LIMIT = 63
"""The longest name shown, in characters; the engine's limit for names."""
NAMES_SHOWN = 3


class Started(NamedTuple):
    """The result of a start."""

    notices: tuple[str, ...] = ()
    """What it could not do, in words that are not sanitised."""
    kept: Checkpoint | None = None
    """The checkpoint that keeps what the disk was before a start at another one."""


def start(at: str | None = None, *, shown: str = "") -> SandboxVerb[Started]:
    """Starts a stopped sandbox, which outlives us: with its disk, or at the checkpoint ``at``, an
    id or a tag that commands call ``shown``."""
    shown = shown or at or ""

    def tell(name: str, started: Started, keymap: Keymap) -> str | None:
        if at is not None and not started.notices:
            return f"{name}: started at {clip(shown, TITLE_CELLS)}"
        return told_of(name, started)

    return SandboxVerb(
        name="start",
        values={"at": shown},
        job=JobVerb.START,
        failed=NOT_STARTED,
        doing="starting",
        done=STARTED,
        open=open_stopped,
        act=lambda sandbox, _: let_go_on(sandbox, at),
        tell=tell,
        there=_started_there,
    )


def _started_there(told: Relayed) -> Started:
    return Started(told.notices)


def told_of(name: str, started: Started) -> str | None:
    """Returns what a start could not do; None if the sandbox's row says enough."""
    notices = [sanitise(notice, limit=NOTICE_LIMIT) for notice in started.notices]
    return f"{name} is running, but: {'; '.join(notices)}" if notices else None


def open_stopped(name: str, report: Report) -> Sandbox:
    """Opens a sandbox that is to be started, with the stages of its start reported."""
    report_stage = _stages_to(report, name)
    report(Progress(name))
    return engine.Sandbox.open(name, progress_callback=report_stage)


def _stages_to(report: Report, sandbox_id: str) -> Any:
    def take(stage: str, done: int, total: int) -> None:
        report(Progress(sandbox_id, stage_text(stage), done + 1, total))

    return take


async def let_go_on(sandbox: Sandbox, at: str | None = None) -> Started:
    """Starts an open sandbox so that it outlives us."""
    before = set[str]() if at is None else {made.id for made in sandbox.checkpoints()}
    await sandbox.start(at=at)
    sandbox.detach()
    return Started(sandbox.notices, None if at is None else newest_automatic(sandbox, before))


# A new sandbox


def create(spec: NewSpec) -> HostVerb[Started]:
    """Starts a new sandbox, which outlives us. The first report gives its id."""

    async def run(_: str, report: Report) -> Started:
        sandbox: Sandbox | None = None

        def progress(stage: str, done: int, total: int) -> None:
            if sandbox is not None:
                _stages_to(report, sandbox.id)(stage, done, total)

        sandbox = engine.Sandbox(
            image=spec.save or spec.image,
            name=spec.name,
            build=True,
            progress_callback=progress,
            **machine_keywords(spec),
        )
        try:
            report(Progress(sandbox.id))
            return await let_go_on(sandbox)
        finally:
            sandbox.close()

    return HostVerb(
        name="run",
        job=JobVerb.START,
        failed=f"{spec.name} did not start",
        done=STARTED,
        run=run,
        spec=spec,
        tell=lambda name, started, keymap: told_of(name, started),
        there=_started_there,
        words=lambda _: [*run_words(spec, relayed=True)],
    )


def machine_records() -> Mapping[str, MachineOption]:
    """Returns the records of a machine's options by keyword."""
    return {record.keyword: record for record in engine.options_of(engine.SandboxConfig)}


def machine_keywords(spec: NewSpec) -> dict[str, Any]:
    """Returns the form's values as keyword arguments of the engine. For a start from a save, the
    engine takes values that are missing from the save. Raises ConfigError."""
    return {
        keyword: record.parse_text(text)
        for keyword, record in machine_records().items()
        if (text := spec.machine.get(keyword))
    }


def run_command(spec: NewSpec) -> str:
    """Returns the command that starts the same sandbox, quoted for a shell."""
    return shown_command(run_words(spec), spec.host)


def run_words(spec: NewSpec, *, relayed: bool = False) -> list[str]:
    """Returns the words of that command; with ``relayed`` as it is carried out for the app."""
    image = spec.image or "IMAGE"
    if relayed and spec.save:
        image = own_key(spec.save, spec.host)  # the very one, whatever other saves are called
    words = ["--name", spec.name or "NAME"]
    for keyword, record in machine_records().items():
        text = spec.machine.get(keyword, "")
        # From a save or a file, an option that is not given has the value there, so defaults are
        # given too.
        usual = spec.suggested.get(keyword, record.default_text)
        if text and (spec.save or spec.is_file or text != usual):
            words += record.words(text)
    words += ["--detach", *(("--build", "--json") if relayed else ())]
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


def clone(
    spec: CloneSpec, *, shown_at: str = "", name: str | None = None, concurrency: int | None = None
) -> SandboxVerb[Sequence[Clone]]:
    """Makes sandboxes that go on from the present of a sandbox or from one of its checkpoints, all
    or none; they outlive us. Commands call the checkpoint ``shown_at``; ``name`` is that of a
    single clone, and ``concurrency`` how many start at a time."""

    async def act(source: Sandbox, _: Report) -> Sequence[Clone]:
        clones = await source.clone(
            spec.count,
            concurrency=concurrency,
            at=spec.at,
            names=None if name is None else [name],
            mounts=spec.mounts or None,
        )
        # This comes before anything else is awaited, so that one who cancels it finds all clones or
        # none.
        made = [Clone(clone.name, clone.notices, start_facts(clone)) for clone in clones]
        for clone in clones:
            clone.detach()
        for clone in clones:
            clone.close()
        return made

    return SandboxVerb(
        name="clone",
        values={
            "count": spec.count if spec.count != 1 else None,
            "at": shown_at or spec.at,
            "mounts": spec.mounts,
        },
        job=JobVerb.CLONE,
        failed="No clone was made",
        stage=f"making {'a clone' if spec.count == 1 else f'{spec.count} clones'}",
        act=act,
        tell=_tell_clones,
        facts=lambda _, clones: [clone.facts for clone in clones],
        there=_clones_there,
    )


def _clones_there(told: Relayed) -> Sequence[Clone]:
    if not isinstance(told.json, list):
        raise TypeError("the clones are no list")
    facts = [engine.Fields(one, "the clone") for one in told.json[: engine.CLONES_MAX]]
    return [Clone(one.text("name"), one.texts("notices"), {}) for one in facts]


def _tell_clones(name: str, clones: Sequence[Clone], keymap: Keymap) -> str:
    names = [sanitise(clone.name, limit=NAME_LIMIT) for clone in clones]
    shown = ", ".join(names[:NAMES_SHOWN]) + (" …" if len(names) > NAMES_SHOWN else "")
    return f"{name}: cloned as {shown}"
