"""A random walk over the Python API: calls with legal, odd, missing and wrong values. Each works,
or raises one of our errors and changes nothing; and all that exists can be read back after it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import random
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from quicksand import Checkpoint, QuicksandError, Sandbox, SaveManifest, Snapshot, saves
from quicksand.base.paths import Paths, paths
from quicksand.records.config import SandboxConfig
from quicksand.things.status import Status

from tests.walks import ODD_NUMBERS, ODD_TEXTS, WRONG, Diary, Logs, brief, long_seconds, long_seed

pytestmark = pytest.mark.vm

SHORT_SEED = 7
SHORT_S = 10.0
ANSWER_S = 180.0
"""After which a call that waits for nothing is stuck, on the busiest host."""
WAITING_S = 0.3
"""For calls that wait for what may never come."""
READ_STEPS = 40
"""Steps after which the commands read back everything, too."""
SANDBOXES_MAX = 4

LEFT_OUT = {
    "save_on_stop": "takes a store, which has no public name",
    "ended": "takes a callback, is not one",
}
OFTEN = ("checkpoint", "revert", "undo", "delete_checkpoint", "note_checkpoint", "pin_checkpoint",
         "save", "save_to", "snapshot", "mount", "unmount", "forward", "start", "diff", "export",
         "import_", "write")  # fmt: skip
RARE = ("stop", "kill", "trash", "pause", "clone", "fork", "disconnect", "detach", "abandon")
"""Methods that change what all others meet."""
WEIGHTS = {**dict.fromkeys(OFTEN, 4.0), **dict.fromkeys(RARE, 0.5), "wait_for_screen": 0.3}
"""How often a method is called; all others: 1."""
WAITING = {
    *("wait_disconnected", "events", "wait", "output", "pieces", "accept", "receive", "read"),
    "catch_up",
}
"""Methods that may wait for ever."""


class Seen(NamedTuple):
    """All that exists, as the API reads it back."""

    sandboxes: dict[str, tuple[str, Status]]
    checkpoints: dict[str, tuple[tuple[Any, ...], ...]]
    saves: tuple[tuple[str, str], ...]


def look() -> Seen:
    """Read everything. Raises what reading raises, and AssertionError for what is broken."""
    sandboxes: dict[str, tuple[str, Status]] = {}
    checkpoints = {}
    for entry in Sandbox.list():
        assert entry.status is not Status.BROKEN, f"{entry.name} is broken: {entry.error}"
        assert entry.record is not None
        sandboxes[entry.id] = entry.name, entry.status
        nodes = Sandbox.open(entry.id, to_end_it=True).checkpoints()
        kept = [one for one in nodes if not one.auto]
        checkpoints[entry.id] = tuple((one.id, one.tag, one.note, one.pinned) for one in kept)
    found = saves.list(everywhere=True)
    for one in found:
        assert not one.problems, f"the save {one.name} has problems: {one.problems}"
    return Seen(sandboxes, checkpoints, tuple(sorted((one.path, one.name) for one in found)))


class Call(NamedTuple):
    """One method of the API on one object."""

    name: str
    method: Callable[..., Any]
    signature: inspect.Signature

    @classmethod
    def of(cls, owner: str, holder: Any, name: str) -> Call:
        method = getattr(holder, name)
        return cls(f"{owner}.{name}", method, inspect.signature(method))

    @property
    def weight(self) -> float:
        return WEIGHTS.get(self.name.rpartition(".")[2], 1.0)


def calls_of(owner: str, holder: Any) -> list[Call]:
    names = [name for name in dir(holder) if not name.startswith("_")]
    names = [n for n in names if n not in LEFT_OUT and f"{owner}.{n}" not in LEFT_OUT]
    static = inspect.getattr_static
    kept = [n for n in names if not isinstance(static(holder, n, None), property)]
    kept = [n for n in kept if n not in ("on_demand", "desktop", "files")]
    return [Call.of(owner, holder, n) for n in kept if callable(getattr(holder, n, None))]


def ignore(*_: object) -> None:
    """Takes what a call reports."""


GUEST_FILES = ["/root/f", "/root/g", "/tmp", "/root/d/e", "/root/new"]
MOUNTED = "/mnt/here"
FORWARDED = 28_123

LEGAL: Mapping[str, list[Any]] = {
    "note": ["", "a note", "two\nlines", "zoë"],
    "tier": [None, "pages", "internal"],
    **{"n": [1], "count": [1], "concurrency": [None, 1, 2], "mounts": [None, "ro", "rw"]},
    "command": ["true", "echo hello", ["id"], "exit 3", "cat /root/f", "sleep 0.1"],
    **{"timeout": [5.0, 10, None], "grace": [0, 5.0], "shell": ["/bin/sh"], "user": [None, "root"]},
    **{name: [None, ignore] for name in ("on_stdout", "on_stderr", "report", "progress")},
    **{"on_progress": [ignore], "progress_callback": [None, ignore], "env": [None, {"A": "b"}]},
    **{"cwd": [None, "/tmp"], "base_dir": [None], "host": [None], "guest": [8080, 22]},
    **{"port": [22, 8080], "protocol": ["tcp", "udp"], "method": ["ping", "stats"]},
    **{"params": [None, {}], "limit": [1000], "replay": [1000], "columns": [80, 120], "rows": [24]},
    **{"session": ["nothing"], "handle": [MOUNTED], "type": ["cifs"], "mode": [None, 0o644, 0o755]},
    **{"content": [b"content", "text"], "offset": [0, 3], "length": [None, 2], "data": [b"x\n"]},
    **{"mtime_ns": [None, 10**18], "metadata": [False, True], "format": ["png"], "region": [None]},
    **{"scale": [None, 0.5], "until": ["stable"], "text": ["hello"], "x": [3], "y": [4]},
    **{"width": [640], "height": [480], "notches": [1], "button": ["left"], "hold": [0.02]},
    **{"keys": ["a"], "below": ["/"], "fleet": [None], "restart": [None], "source": GUEST_FILES},
    **{"target": GUEST_FILES, "existing": GUEST_FILES, "files.path": GUEST_FILES},
    **{"compare_file.path": GUEST_FILES, "watch.path": GUEST_FILES, "files.write.metadata": [None]},
    **{"dial.path": [None], "listen.path": [None], "image": [False], "mount.guest": [MOUNTED]},
    **{f"{name}.host": ["127.0.0.1"] for name in ("dial", "dial_udp", "listen")},
    **{f"{name}.host": [0, FORWARDED] for name in ("forward", "unforward")},
    **{"execute.stdin": [None, b"in", "text"], "signal.name": ["TERM", "INT"]},
    "feed.source": [b"bytes"],
}
"""Legal values by the names of parameters, or of methods and parameters; others are switches."""


class Values:
    """Draws arguments."""

    def __init__(self, draws: random.Random, place: Path) -> None:
        self._draws = draws
        self._place = place
        self._count = 0
        self.tags: list[str] = ["none-yet"]
        self.sandboxes: list[str] = []
        self.saves: list[str] = []
        (place / "shared").mkdir()

    def fresh(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def _known(self, kind: str, known: list[str]) -> str:
        """One that is there, or a new one."""
        return self._draws.choice([*known[-6:], self.fresh(kind)])

    def legal(self, call: str, parameter: str) -> Any:
        """Draw a value for a parameter of a method of an object."""
        owner, _, method = call.partition(".")
        for key in (f"{call}.{parameter}", f"{owner}.{parameter}", f"{method}.{parameter}"):
            if key in LEGAL:
                return self._draws.choice(LEGAL[key])
        match parameter:
            case "name" if call == "saves.export":
                return self._draws.choice([*self.saves, *self.sandboxes, "nothing"])
            case "name" if owner == "saves" and method != "import_":
                return self._known("save", self.saves)
            case "tag":
                return self._known("t", self.tags)
            case "a" | "b" | "at":
                return self._draws.choice(self.tags)
            case "id_or_name":
                return self._known("s", self.sandboxes)
            case "name" | "new_name":
                return self.fresh("n")
            case "names":
                return self._draws.choice([None, [self.fresh("c")]])
            case "host" if method == "mount":
                return str(self._place / "shared")
            case "path" | "file" | "workspace":
                if method in ("export", "import_"):
                    return str(self._place / "out.quicksand")
                return str(self._place / self._draws.choice(["one", "two", "three"]))
        return self._draws.choice(LEGAL.get(parameter, [False, True]))

    def bad(self) -> Any:
        pool = self._draws.choice([ODD_TEXTS, ODD_NUMBERS, WRONG, (None,)])
        return self._draws.choice(pool)

    def arguments(self, call: Call) -> tuple[list[Any], dict[str, Any]]:
        """Positional arguments and keywords: all legal half of the time, else mostly one bad."""
        kinds = call.signature.parameters.values()
        known = [p for p in kinds if p.name != "self" and p.kind is not p.VAR_KEYWORD]
        sound = self._draws.random() < 0.5
        bad = {self._draws.choice(known).name} if known and not sound else set()
        if bad and self._draws.random() < 0.2:
            bad |= {self._draws.choice(known).name}
        words: list[Any] = []
        named: dict[str, Any] = {}
        for one in known:
            is_needed = one.default is one.empty and one.kind is not one.VAR_POSITIONAL
            if one.name not in bad and not is_needed and self._draws.random() < 0.75:
                continue
            if one.name in bad and is_needed and self._draws.random() < 0.1:
                continue  # missing
            value = self.bad() if one.name in bad else self.legal(call.name, one.name)
            if one.kind is one.VAR_POSITIONAL:
                words.append(value)
            else:
                named[one.name] = value
        if bad and self._draws.random() < 0.03:
            named["no_such_keyword"] = self.bad()
        return words, named


class Walk:
    """One walk: a world of few sandboxes, and what has been seen of it."""

    def __init__(self, draws: random.Random, diary: Diary, place: Path) -> None:
        self._draws = draws
        self._diary = diary
        self._values = Values(draws, place)
        self._place = place
        self._logs = Logs(paths().data)
        self._seen = look()

    async def run(self) -> None:
        while not self._diary.is_over:
            await self._heal()
            await self._step()
            for line in self._logs.faults():
                self._diary.fault(f"log: {line[-60:]}", line)
            if len(self._diary.steps) % READ_STEPS == 0:
                await self._read_by_commands()

    async def _heal(self) -> None:
        """See to it that there is a running sandbox, and not too many."""
        for id_, (_, status) in [*self._seen.sandboxes.items()][SANDBOXES_MAX:]:
            sandbox = Sandbox.open(id_, to_end_it=True)
            await sandbox.trash()
            sandbox.close()
            self._diary.step(f"(healed: trashed one, {status})")
        statuses = [status for _, status in self._seen.sandboxes.values()]
        running = [s for s in statuses if s is Status.RUNNING]
        if running and (Status.PAUSED not in statuses or self._draws.random() < 0.3):
            return self._note()
        for id_, (_, status) in self._seen.sandboxes.items():
            if status is Status.PAUSED:
                sandbox = Sandbox.attach(id_)
                await sandbox.resume()
                sandbox.close()
                return self._note()
        stopped = [id_ for id_, (_, s) in self._seen.sandboxes.items() if s is Status.STOPPED]
        if stopped:
            sandbox = Sandbox.open(stopped[0])
        else:
            sandbox = Sandbox(image="debian", name=self._values.fresh("s"))
        await sandbox.start()
        sandbox.detach()
        sandbox.close()
        self._diary.step("(healed: one runs)")
        self._note()

    def _note(self) -> None:
        self._seen = look()
        values = self._values
        values.sandboxes = [name for name, _ in self._seen.sandboxes.values()]
        values.saves = [name for _, name in self._seen.saves]
        nodes = [node for nodes in self._seen.checkpoints.values() for node in nodes]
        values.tags = [node[1] for node in nodes] or ["none-yet"]

    @contextlib.asynccontextmanager
    async def _object(self) -> AsyncIterator[Sandbox]:
        weights = [
            5 if status is Status.RUNNING else 1 for _, status in self._seen.sandboxes.values()
        ]
        id_ = self._draws.choices([*self._seen.sandboxes], weights)[0]
        name, status = self._seen.sandboxes[id_]
        self._values.tags = [node[1] for node in self._seen.checkpoints[id_]] or self._values.tags
        self._diary.step(f"on {name}, {status.value}:")
        sandbox = Sandbox.open(id_, to_end_it=True)
        try:
            yield sandbox
        finally:
            sandbox.close()

    async def _step(self) -> None:
        kinds = ["sandbox", "files", "saves", "class", "new", "held"]
        kind = self._draws.choices(kinds, [60, 12, 10, 6, 12, 8])[0]
        if kind == "new":
            return await self._make()
        async with self._object() as sandbox:
            if kind == "held":
                return await self._use_held(sandbox)
            if kind == "sandbox":
                calls = calls_of("sandbox", sandbox)
            elif kind == "files":
                calls = calls_of("files", sandbox.files)
            elif kind == "saves":
                calls = calls_of("saves", saves)
            else:
                names = ("attach", "open", "restore", "list", "validate_save")
                calls = [Call.of("Sandbox", Sandbox, name) for name in names]
                calls.append(Call.of("Snapshot", Snapshot, "load"))
            call = self._draws.choices(calls, [one.weight for one in calls])[0]
            words, named = self._values.arguments(call)
            await self._check(call, words, named)

    async def _use_held(self, sandbox: Sandbox) -> None:
        """Call a method of what another call has opened in the guest."""
        if not sandbox.is_running:
            return
        opened: Mapping[str, Callable[[], Awaitable[Any]]] = {
            "Shell": lambda: sandbox.shell(["cat"]),
            "Command": lambda: sandbox.spawn("cat", stdin=True),
            "GuestListener": lambda: sandbox.listen(0),
            "GuestDatagrams": lambda: sandbox.dial_udp(9),
            "DirectoryWatch": lambda: sandbox.watch("/root"),
            "WatchedShell": lambda: self._watched(sandbox),
        }
        kind = self._draws.choice([*opened])
        try:
            async with asyncio.timeout(ANSWER_S):
                held = await opened[kind]()
        except QuicksandError:
            return  # it is paused
        try:
            static = ("open", "attach", "list")  # they take a session, which has no public name
            calls = [c for c in calls_of(kind, held) if not c.name.endswith(static)]
            call = self._draws.choice(calls)
            words, named = self._values.arguments(call)
            await self._check(call, words, named)
        finally:
            with contextlib.suppress(QuicksandError):
                await self._drop(held)

    @staticmethod
    async def _watched(sandbox: Sandbox) -> Any:
        shell = await sandbox.shell(["cat"])
        await shell.detach()
        info, *_ = await sandbox.shells()
        return await sandbox.watch_shell(info.session)

    async def _make(self) -> None:
        """Make a `Sandbox` with random options; it is rarely started."""
        named: dict[str, Any] = {"image": "debian"}
        options = [*SandboxConfig.__dataclass_fields__, *inspect.signature(Sandbox).parameters]
        options.remove("options")
        for name in self._draws.sample(sorted(set(options)), self._draws.randint(0, 2)):
            named[name] = self._values.bad()
        self._diary.step("make:")
        await self._check(Call("Sandbox", Sandbox, inspect.signature(Sandbox)), [], named)

    async def _check(self, call: Call, words: list[Any], named: dict[str, Any]) -> None:
        shown = [*map(brief, words), *(f"{name}={brief(one)}" for name, one in named.items())]
        self._diary.step(f"{call.name}({', '.join(shown)})")
        is_callable = True
        try:
            call.signature.bind(*words, **named)
        except TypeError:
            is_callable = False
        before, result, was_done = self._seen, None, False
        try:
            result = await self._carry_out(call, words, named)
            outcome, was_done = brief(result), True
        except QuicksandError as error:
            outcome = f"{type(error).__name__}: {error}"[:200].replace("\n", " ")
            self._compare(call, named, before, outcome)
        except TypeError as error:
            outcome = repr(error)
            if is_callable:
                self._odd(call, named, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
            outcome = repr(error)[:200]
            self._odd(call, named, error)
        self._diary.steps[-1] += f" -> {outcome}"
        try:
            self._note()
            if was_done:
                self._find_again(call, named, result)
        except Exception as error:
            self._diary.fault(f"unreadable after {call.name}", repr(error))
            raise

    def _find_again(self, call: Call, named: dict[str, Any], result: Any) -> None:
        """What a call has made is there. Raises AssertionError."""
        nodes = [node for nodes in self._seen.checkpoints.values() for node in nodes]
        match call.name.rpartition(".")[2], result:
            case "checkpoint", Checkpoint():
                assert (result.id, result.tag, named.get("note", ""), False) in nodes, result
            case "note_checkpoint", None:
                notes = [node[2] for node in nodes if named["tag"] in node[:2]]
                assert named["note"] in notes, notes
            case "save", SaveManifest():
                assert named["name"] in self._values.saves, self._values.saves
            case (("restore" | "open" | "attach" | "clone"), Sandbox() | [*_]):
                made = result if isinstance(result, list) else [result]
                assert {one.id for one in made} <= self._seen.sandboxes.keys(), made

    def _odd(self, call: Call, named: dict[str, Any], error: Exception) -> None:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place else ""
        kind = f"{call.name} {type(error).__name__} {where}"
        self._diary.fault(kind, f"{error!r:.300} of {sorted(named)}")

    def _compare(self, call: Call, named: dict[str, Any], before: Seen, outcome: str) -> None:
        after = look()
        if after != before:
            told = "\n".join(f"{b}\n  -> {a}" for b, a in zip(before, after, strict=True) if a != b)
            self._diary.fault(f"{call.name} changed", f"{outcome} of {sorted(named)}\n{told}")

    async def _carry_out(self, call: Call, words: list[Any], named: dict[str, Any]) -> Any:
        method = call.name.rpartition(".")[2]
        if method in WAITING and not call.name.startswith("files."):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAITING_S):
                    return await self._use(call.method(*words, **named))
            return "waits"
        async with asyncio.timeout(ANSWER_S):
            return await self._use(call.method(*words, **named))

    async def _use(self, result: Any) -> Any:
        """Await, iterate, read and close what a call returned, and return it."""
        if inspect.isawaitable(result):
            result = await result
        if hasattr(result, "__aenter__") and not isinstance(result, Sandbox):
            async with result:
                return result
        if hasattr(result, "__anext__"):
            async for _ in result:
                break
            await result.aclose()
            return result
        made = result if isinstance(result, list) else [result]
        for one in made:
            await self._drop(one)
        return result

    @staticmethod
    async def _drop(one: Any) -> None:
        if isinstance(one, Sandbox):
            if one.is_running:
                one.detach()
            one.close()
            return
        for name in ("cancel", "close"):  # of a command, a shell, a connection
            if (end := getattr(one, name, None)) is not None and not isinstance(one, type):
                done = end()
                if inspect.isawaitable(done):
                    await done
                return

    async def _read_by_commands(self) -> None:
        """The commands read what is there, too."""
        names = [name for name, _ in self._seen.sandboxes.values()]
        lists = [
            ["ps", "-a", "--json"],
            ["saves", "--json"],
            *(["tree", n, "--json"] for n in names),
        ]
        for words in lists:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "quicksand_tui", *words), stdout=-1, stderr=-1
            )
            out, err = await process.communicate()
            if process.returncode != 0 or b"Traceback" in err:
                self._diary.fault(f"{words[0]} fails", err.decode()[-600:])
            elif words[0] == "ps":
                listed = {row["name"] for row in json.loads(out)}
                if listed != set(names):
                    self._diary.fault("ps differs", f"{listed} and {set(names)}")


async def walk(seed: int, seconds: float, place: Path) -> None:
    with Diary(seed, seconds) as diary, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of saves that are not trusted
        try:
            await Walk(random.Random(seed), diary, place).run()
        finally:
            for entry in Sandbox.list():
                await Sandbox.open(entry.id, to_end_it=True).kill()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: Paths) -> Path:
    """A directory in which relative paths may be made."""
    (deep := tmp_path / "a" / "b" / "c").mkdir(parents=True)
    monkeypatch.chdir(deep)
    return deep


async def test_a_short_walk_over_the_api(here: Path) -> None:
    await walk(SHORT_SEED, SHORT_S, here)


@pytest.mark.soak
@pytest.mark.timeout(long_seconds() + 600)
async def test_a_long_walk_over_the_api(here: Path) -> None:
    await walk(long_seed(), long_seconds(), here)
