"""A random walk through the app on real VMs: keys, lines, pastes, clicks and sizes, while another
client changes the same sandboxes. It never shows an error of Python, always answers, and its list
is what `ps` says."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, Self

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths, paths
from quicksand.things.status import Status

from quicksand_tui.actions.all_actions import ACTIONS, Scope
from quicksand_tui.actions.line import verbs_of
from tests.conftest import wait_for
from tests.e2e.test_app_tmux import nothing_runs_on
from tests.e2e.tmux import Terminal
from tests.pty_terminal import WHOLE, PtyTerminal
from tests.walks import FAULT, Diary, Logs, long_seconds, long_seed

__all__ = ["nothing_runs_on"]

pytestmark = pytest.mark.vm

SHORT_SEED = 5
SHORT_S = 10.0
LEAST_STEPS = 8
COLUMNS, ROWS = 120, 36
SLOW_BYTES_PER_S = 20_000
PERSON_S = 0.25
"""Seconds between two keys; a text of several keys comes at once."""
PAINTED_S = 5.0
"""After which a key that should show something is pressed again."""
ANSWER_S = 150.0
"""After which an app does not answer, on the busiest host."""
SETTLE_STEPS = 7
"""Steps between two looks at the list."""
SANDBOXES_MAX = 5
NAME_SHOWN = 12
"""Characters of a name that the narrowest list shows."""

NOT_PRESSED = {
    "q": "it ends the app, or goes back as escape does",
    "ctrl+z": "nothing resumes it",
    "ctrl+p": "what is typed there could end or suspend the app",
    "I": "packages come from the network",
    "R": "images that other walks need",
    "0": "a digit typed into the number of clones would make very many of them",
}
NOT_TYPED = {"install", "uninstall", "suspend", "quit", "palette"}

CHARACTERS = {
    **{"enter": "\r", "escape": "\x1b", "space": " ", "colon": ":", "slash": "/", "at": "@"},
    **{"asterisk": "*", "apostrophe": "'", "exclamation_mark": "!", "question_mark": "?"},
    **{"greater_than_sign": ">", "less_than_sign": "<", "minus": "-", "plus": "+"},
    **{"percent_sign": "%", "quotation_mark": '"', "semicolon": ";", "ctrl+l": "\x0c"},
    **{"left_square_bracket": "[", "right_square_bracket": "]"},
    **{"left_curly_bracket": "{", "right_curly_bracket": "}"},
    **{"up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D"},
    **{"ctrl+up": "\x1b[1;5A", "ctrl+down": "\x1b[1;5B"},
    **{"ctrl+right": "\x1b[1;5C", "ctrl+left": "\x1b[1;5D"},
    **{"pageup": "\x1b[5~", "pagedown": "\x1b[6~", "home": "\x1b[H", "end": "\x1b[F"},
    **{"tab": "\t", "shift+tab": "\x1b[Z", "backspace": "\x7f", "delete": "\x1b[3~"},
    **{"ctrl+u": "\x15", "ctrl+y": "\x19", "ctrl+r": "\x12", "f1": "\x1bOP", "alt+x": "\x1bx"},
}
"""What a terminal sends for keys of more than a character (xterm's ctlseqs)."""
PREFIX_KEY = "\x1d"

MOVING = (
    "enter",
    "escape",
    "tab",
    "shift+tab",
    "up",
    "down",
    "left",
    "right",
    "pageup",
    "pagedown",
    "home",
    "end",
    "backspace",
    "delete",
    "ctrl+u",
    "ctrl+y",
    "f1",
    "alt+x",
)

# No digits: they would be taken for numbers of clones.
WORDS = (
    "alpha",
    "beta",
    "gamma",
    "kept",
    "debian",
    "nothing",
    "word",
    "-",
    "--",
    "--name",
    "--at",
    ".",
    "..",
    "a/b",
    "*",
    "zoë",
    "日本",
    "🏖️",
    "'",
    '"',
    "\\",
    "%s",
    "{}",
    "[bold]",
    "[/]",
    "$x",
    "~",
    ":",
    "--note",
    "-m",
    "=",
    "--count",
    "x" * 90,
)
COMMANDS = (
    "ls /",
    "top",
    "true",
    "sleep 3 &",
    "vi",
    "exit",
    "cat",
    "echo héllo; tput smcup",
    "printf '\\033[?1003h'",
    "yes | head -n 4000",
    "stty -a",
    "printf '\\033]52;c;aGk=\\007'",
    "while :; do date; done",
    "clear",
)
PASTES = (
    "one\ntwo\nthree\n",
    "\x1b[31mred\x1b[0m",
    "日本語と🏖️",
    "\x1b[?1049l",
    "tab\ttab",
    "\r\n",
    "x" * 3_000,
    "é" * 200,
    "'\"`$(true)",
    "\x9b2J",
    "line\n" * 400,
)


def comes(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether a condition is true within that time."""
    try:
        wait_for(condition, what="what may also not come", timeout=seconds)
    except AssertionError:
        return False
    return True


class Line(Protocol):
    """A terminal with the app in it."""

    @property
    def text(self) -> str: ...
    def send(self, text: str) -> None: ...
    def resize(self, columns: int, rows: int) -> None: ...
    def has_ended(self) -> int | None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class TmuxLine(Terminal):
    """The app in tmux."""

    def send(self, text: str) -> None:
        # tmux takes a semicolon at the end of a word for the end of its command.
        word = f"{text[:-1]}\\;" if text.endswith(";") else text
        self._run("send-keys", "-l", "--", word)

    def has_ended(self) -> int | None:
        found = re.search(r"STATUS=(\d+)", self.text)
        return int(found[1]) if found else None


class SlowLine(PtyTerminal):
    """The app beyond a network that carries little."""

    def send(self, text: str) -> None:
        self.type(text.encode())

    def has_ended(self) -> int | None:
        return self.process.poll()


def open_line(kind: str, place: Path) -> Line:
    """Open the app on a terminal: in "tmux", in tmux as over "ssh", or on a "slow" line."""
    argv = ["sh", "-c", 'cd "$0" && exec "$@"', str(place), sys.executable, "-m", "quicksand_tui"]
    home = {"HOME": str(place), "QUICKSAND_TEMPLATES": "use", "XDG_PICTURES_DIR": str(place)}
    far = {"SSH_TTY": "/dev/pts/0", "SSH_CONNECTION": "192.0.2.1 5000 192.0.2.2 22"}
    if kind == "slow":
        return SlowLine(
            argv,
            columns=COLUMNS,
            rows=ROWS,
            answers=WHOLE,
            delay_s=0.1,
            env={**home, **far},
            bytes_per_s=SLOW_BYTES_PER_S,
            is_far=True,
        )
    return TmuxLine(argv, columns=COLUMNS, rows=ROWS, **home, **(far if kind == "ssh" else {}))


def keys_of(*scopes: Scope) -> list[str]:
    keys = {key for action in ACTIONS if action.scope in scopes for key in action.keys}
    return sorted(CHARACTERS.get(key, key) for key in keys - set(NOT_PRESSED))


class Other:
    """Another client: commands that run beside the app."""

    def __init__(self, draws: random.Random, diary: Diary, place: Path) -> None:
        self._draws = draws
        self._diary = diary
        self._place = place
        self._running: list[tuple[list[str], subprocess.Popen[bytes]]] = []
        self._count = 0

    def begin(self) -> None:
        """Begin to change a sandbox, or make one."""
        names = [name for name, _ in listed()]
        name = self._draws.choice([*names, "nobody"])
        self._count += 1
        words = self._draws.choice([
            ["run", "debian", "--name", f"o-{'abcdefgh'[self._count % 8]}", "--detach"],
            *(["checkpoint", name], ["stop", name], ["start", name], ["pause", name]),
            *(["resume", name], ["rm", "--force", name], ["save", name, "other"]),
            *(["clone", name], ["undo", name], ["exec", name, "true"], ["kill", name]),
        ])  # fmt: skip
        self._diary.step(f"another client: {' '.join(words)}")
        self._running.append((words, client(words, self._place)))

    def finish(self) -> None:
        """Wait for all that was begun."""
        for words, process in self._running:
            _, said = process.communicate(timeout=240)
            if process.returncode < 0 or FAULT.search(said.decode("utf-8", "replace")):
                self._diary.fault(f"client {words[0]}", said.decode("utf-8", "replace")[-800:])
        self._running.clear()

    def thin_out(self) -> None:
        """Remove sandboxes that are too many, and see to it that one runs."""
        found = listed()
        for name, _ in found[SANDBOXES_MAX:]:
            self._running.append((["rm"], client(["rm", "--force", name], self._place)))
        if not any(status is Status.RUNNING for _, status in found[:SANDBOXES_MAX]):
            words = ["run", "debian", "--name", "alpha", "--detach"]
            if found:
                name, status = found[0]
                verb = "resume" if status is Status.PAUSED else "start"
                words = [verb, name]
            self._running.append((words, client(words, self._place)))
        self.finish()


def client(words: list[str], place: Path) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "quicksand_tui", *words]
    return subprocess.Popen(
        argv, cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def listed() -> list[tuple[str, Status]]:
    """The sandboxes, as the commands list them."""
    return [(entry.name, entry.status) for entry in Sandbox.list()]


def told_by_commands(place: Path) -> dict[str, str]:
    """The signs of the sandboxes by their names, and the saves, which have none."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "quicksand_tui", *words], cwd=place, stdout=subprocess.PIPE
        )
        for words in (["ps", "-a", "--json"], ["saves", "--json"])
    ]
    found = [json.loads(process.communicate(timeout=ANSWER_S)[0]) for process in processes]
    signs = {brief_name(row["name"]): Status(row["status"]).sign for row in found[0]}
    return signs | {f"save {brief_name(row['name'])}": "" for row in found[1]}


_SIGNS = "".join({status.sign for status in Status})
_WORDS = "|".join(Status)
_SANDBOX = re.compile(
    rf"┃[^{_SIGNS}┃]{{0,4}}([{_SIGNS}])[ │├─╮╯┼]+(?:(?:{_WORDS}) +)?([A-Za-z0-9][\w.-]*…?)"
)
_SAVE = re.compile(r"┃[^┃]{0,3}? (\S+(?: \S+)*) +[0-9.]+[BKMGT]? ")


def brief_name(name: str) -> str:
    """A name without what terminals draw in different ways, as far as a list has room for it."""
    return re.sub(r"[^!-~]", "", name)[:NAME_SHOWN]


def rows_of(text: str, title: str) -> list[str] | None:
    """The rows of the list in the heavy frame whose title begins so; None if it is not there."""
    lines = text.splitlines()
    top = next((n for n, line in enumerate(lines) if line.startswith(f"┏━ {title}")), None)
    if top is None:
        return None
    return list(itertools.takewhile(lambda line: line[:1] == "┃", lines[top + 1 :]))


def do_agree(shown: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether these are the same, but for names of which a narrow list shows the beginning."""
    begins = all(
        any(full.startswith(name) and wanted[full] == sign for full in wanted)
        for name, sign in shown.items()
    )
    return begins and len(shown) == len(wanted)


class Walk:
    """A walk through one app, which is now and then left and opened again."""

    def __init__(self, kind: str, draws: random.Random, diary: Diary, place: Path) -> None:
        self._kind = kind
        self._draws = draws
        self._diary = diary
        self._place = place
        self._stack = contextlib.ExitStack()
        self._line = self._open()
        self._other = Other(draws, diary, place)
        self._logs = Logs(paths().data)
        self._main = keys_of(Scope.MAIN)
        self._all = keys_of(*set(Scope) - {Scope.PANES, Scope.DESKTOP})
        self._behind = keys_of(Scope.PANES, Scope.DESKTOP)
        self._moving = [CHARACTERS[key] for key in MOVING]
        self._verbs = sorted(set(verbs_of(Scope.MAIN)) - NOT_TYPED)
        self._steps: list[tuple[float, Callable[[], None]]] = [
            (20, lambda: self._press(self._main)),
            (12, lambda: self._press(self._all)),
            (14, lambda: self._press(self._moving)),
            (8, lambda: self._press(self._behind, PREFIX_KEY)),
            (14, self._type_line),
            (8, self._fill_in),
            (4, self._confirm),
            (6, self._use_shell),
            (5, self._paste),
            (10, self._click),
            (5, self._resize),
            (6, self._other.begin),
            (1, self._again),
        ]

    def _open(self) -> Line:
        line = open_line(self._kind, self._place)
        self._stack.enter_context(line)
        return line

    def run(self) -> None:
        with self._stack:
            self._settle()
            count = 0
            while not self._diary.is_over:
                weights = [weight for weight, _ in self._steps]
                self._draws.choices(self._steps, weights)[0][1]()
                self._look()
                count += 1
                if count % SETTLE_STEPS == 0:
                    self._settle()
            self._settle()
            self._leave()

    # Steps

    def _send(self, *texts: str) -> None:
        for text in texts:
            self._line.send(text)
            time.sleep(PERSON_S)

    def _press(self, keys: list[str], *before: str) -> None:
        pressed = [*before, self._draws.choice(keys)]
        self._diary.step(f"press {pressed!r}")
        self._send(*pressed)

    def _type_line(self) -> None:
        words = [self._draws.choice(self._verbs), *self._words(self._draws.choice((0, 1, 1, 2, 3)))]
        text = " ".join(words)
        self._diary.step(f"type : {text!r}")
        self._send(":", text, "\r")

    def _words(self, count: int) -> list[str]:
        usual = WORDS[:5]
        return [self._draws.choice(self._draws.choice((usual, WORDS))) for _ in range(count)]

    def _fill_in(self) -> None:
        key = self._draws.choice("nSbcMp!tuea")
        texts = self._words(self._draws.randint(1, 2))
        moved = self._draws.choices(self._moving, k=self._draws.randint(0, 3))
        self._diary.step(f"fill in {key!r} with {texts!r}, {moved!r}, enter")
        self._send(key, *texts, *moved, "\r")

    def _confirm(self) -> None:
        key = self._draws.choice("dKxu")
        self._diary.step(f"confirm {key!r}")
        self._send(key, "\x19")

    def _use_shell(self) -> None:
        key, command = self._draws.choice("sf"), self._draws.choice(COMMANDS)
        self._diary.step(f"shell {key!r}: {command!r}")
        self._send(key)
        comes(lambda: "# " in self._line.text, 4)
        self._send(command, "\r")

    def _paste(self) -> None:
        text = self._draws.choice(PASTES)
        self._diary.step(f"paste {text[:30]!r}")
        self._send(f"\x1b[200~{text}\x1b[201~")

    def _click(self) -> None:
        x, y = self._draws.randint(1, COLUMNS), self._draws.randint(1, ROWS)
        button = self._draws.choice((0, 0, 0, 1, 2, 64, 65, 16, 4))
        to = (x, y) if self._draws.random() < 0.8 else (self._draws.randint(1, COLUMNS), y)
        self._diary.step(f"click {button} at {x},{y}, up at {to}")
        texts = [f"\x1b[<{button};{x};{y}M"]
        if to != (x, y):
            texts.append(f"\x1b[<{button + 32};{to[0]};{to[1]}M")
        self._send(*texts, f"\x1b[<{button};{to[0]};{to[1]}m")

    def _resize(self) -> None:
        columns, rows = self._draws.randint(10, 220), self._draws.randint(3, 60)
        self._diary.step(f"resize to {columns}x{rows}")
        self._line.resize(columns, rows)
        time.sleep(PERSON_S)

    def _again(self) -> None:
        """Leave the app, and open it again: it shows what was there."""
        self._diary.step("quit and start again")
        self._settle()
        self._leave()
        self._line = self._open()
        self._settle()

    # Looks

    def _look(self) -> None:
        """See that nothing has gone wrong."""
        text = self._line.text
        if (status := self._line.has_ended()) is not None:
            self._diary.fault(f"ended with {status}", text)
            self._line = self._open()
        elif found := FAULT.search(text):
            self._diary.fault(f"{found[0]} on the screen", text)
        self._read_logs()

    def _read_logs(self) -> None:
        for line in self._logs.faults():
            self._diary.fault(f"log: {line[-60:]}", line)

    def _settle(self) -> None:
        """Go to the lists of the main screen, and compare them with what the commands say."""
        self._line.resize(COLUMNS, ROWS)
        self._other.finish()
        self._other.thin_out()
        deadline = time.monotonic() + ANSWER_S
        shown: dict[str, str] | None = None
        wanted: dict[str, str] = {}
        while time.monotonic() < deadline:
            if self._line.has_ended() is not None:
                return self._look()
            shown, wanted = self._shown(), told_by_commands(self._place)
            self._look()
            if shown is not None and do_agree(shown, wanted):
                return
        told = f"the lists have {shown}, the commands have {wanted}"
        kind = "no answer" if shown is None else "the lists differ"
        self._diary.fault(kind, f"{told}\n{self._line.text}")
        self._stack.pop_all().close()
        self._line = self._open()

    def _shown(self) -> dict[str, str] | None:
        """Go to the two lists, and return what they show; None if they do not come."""
        # Where there is no pane, the second key would ask whether to delete a sandbox.
        text = self._line.text
        if "ctrl-]" in text or "1 Sandboxes" not in text:
            self._send(PREFIX_KEY, "d")
        self._send("\x1b", "\x1b", "\x1b", "\x1b", "2")
        saves = self._rows(_SAVE)
        self._send("1")
        sandboxes = self._rows(_SANDBOX)
        if saves is None or sandboxes is None:
            return None
        signs = {brief_name(found[2]): found[1] for found in sandboxes}
        return signs | {f"save {brief_name(found[1])}": "" for found in saves}

    def _rows(self, row: re.Pattern[str]) -> list[re.Match[str]] | None:
        """The rows of the list of sandboxes, of which there always are, or of the other one, once
        it is shown."""
        shown: list[str] = []

        def is_shown() -> bool:
            shown[:] = rows_of(self._line.text, "1 Sandboxes") or ()
            is_read = bool(shown) and not any("Reading" in line for line in shown)
            return is_read and any(map(_SANDBOX.match, shown)) is (row is _SANDBOX)

        if not comes(is_shown, PAINTED_S):
            return None
        return [found for line in shown if (found := row.match(line))]

    def _leave(self) -> None:
        """Quit. A dialog whose key was pressed before may still be on its way."""
        deadline = time.monotonic() + ANSWER_S
        while self._line.has_ended() is None and time.monotonic() < deadline:
            self._send("\x1b", "\x1b", "q")
            comes(lambda: self._line.has_ended() is not None, PAINTED_S)
        if (status := self._line.has_ended()) != 0:
            self._diary.fault(f"quits with {status}", self._line.text)
        self._stack.pop_all().close()


def walk(kind: str, seed: int, seconds: float, place: Path, *, least: int = 0) -> None:
    asyncio.run(prepare())
    with Diary(seed, seconds, least=least) as diary:
        Walk(kind, random.Random(seed), diary, place).run()


async def prepare() -> None:
    """Two sandboxes that run, one that is stopped, and a save."""
    for name in ("alpha", "beta", "gamma"):
        sandbox = Sandbox(image="debian", name=name)
        await sandbox.start()
        if name == "gamma":
            await sandbox.checkpoint("first")
            await sandbox.save("kept", workspace=paths().saves)
            await sandbox.stop()
        else:
            sandbox.detach()
        sandbox.close()


@pytest.fixture(autouse=True)
def ready(places: Paths, template: None) -> Iterator[None]:
    yield


@pytest.mark.timeout(400)
def test_a_short_walk_through_the_app(tmp_path: Path) -> None:
    walk("tmux", SHORT_SEED, SHORT_S, tmp_path, least=LEAST_STEPS)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["tmux", "ssh", "slow"])
@pytest.mark.timeout(long_seconds() + 900)
def test_a_long_walk_through_the_app(kind: str, tmp_path: Path) -> None:
    walk(kind, long_seed(), long_seconds(), tmp_path)
