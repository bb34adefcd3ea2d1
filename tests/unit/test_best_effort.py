"""No error of the engine is passed over in silence: what may fail is noted (base/effort.py), but
for the few that tell nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from quicksand.base import errors

from tests.each import each

ENGINE = Path(__file__).parents[2] / "engine/quicksand"
HOMES = (ENGINE, Path(__file__).parents[2] / "extras/quicksand_fleet")

SILENT = {
    # Looking whether something is there, or is of one kind: no is an answer.
    ("disks/images/image_store.py", "find_version"): "what is no such version is passed over",
    (
        "mounts/known_mounts.py",
        "read_left_out_mounts",
    ): "`read_left_out` still says why they failed",
    ("saves/portable.py", "find_portable"): "a file that is no save in one file",
    ("saves/portable.py", "_load"): "an image that is not there yet, and is made",
    ("saves/verifying.py", "_parts_of_image"): "an image that is not in the store has no checksums",
    ("snapshots/history.py", "_head_or_none"): "who needs the head reports it",
    ("warm/spares/orders.py", "list"): "`read` reports it where orders are changed",
    ("records/trash.py", "_look_at"): "what cannot be read is shown as it is",
    ("command.py", "complete_hosts"): "a shell that completes a word shows no errors",
    # The other side is told by the end of its connection.
    ("remote/peer_link.py", "pass_on"): "the client sees the end, and says what was lost",
    ("remote/agents.py", "_answer_looks"): "a client that is gone asks for nothing",
    ("remote/agents.py", "hear"): "whoever uses the connection is told of its end",
    ("remote/serving.py", "_take"): "who says no hello of this client is hung up on",
    # A network loses datagrams, too, and does not tell.
    ("life/udp_relay.py", "_serve"): "a guest that is gone takes none",
    ("hosted/calling.py", "call"): "a broken connection shows itself at the next call",
    ("hosted/holding.py", "_await_cancel"): "its client may come again, and is waited for",
    ("hosted/life.py", "note_command"): "a machine that is away is told of no command",
    ("hosted/streamed_files.py", "_await_cancel"): "its client is gone, and the work is cancelled",
    ("hosted/life.py", "_let_go"): "the far end lets go by itself of what has no client",
    ("hosted/standing.py", "_remove"): "it is gone already, as it was to be",
    ("hosted/standing.py", "_hear"): "its client is gone, and wants no more lines",
    ("hosted/relayed_screen.py", "_serve"): "whoever looks sees the end, and tries again",
    ("hosted/save_moving.py", "_close"): "the far end closes it with the connection",
    # What was to be removed is gone.
    ("life/cloning.py", "_undo"): "the keeper of an ephemeral clone has removed it",
    ("life/sandbox_life.py", "_remove_record"): "its keeper has removed it",
    ("life/sandbox_removal.py", "remove_sandbox"): "its keeper has removed it",
    ("display/screendump.py", "is_driven"): "a QEMU without these commands",
    # A guest that lacks something.
    ("display/hands.py", "lift_all"): "a guest that takes no input holds nothing down",
    ("warm/template_maker.py", "_settle"): "an image without the kernel's SMB client",
    ("warm/spares/spare_making.py", "_run_first"): "an image need not have these programs",
    ("guest/execution.py", "__aexit__"): "a guest that is gone has ended its commands",
    ("life/forwarder.py", "_until_done"): "whether the sandbox is there is looked at next",
    # A cache of what can be found out again.
    ("base/tick_rate.py", "tick_rate_khz"): "it is measured again",
    ("guest/fitness.py", "put_right"): "the next start's clock is checked, too",
    ("snapshots/verified.py", "add"): "it is verified again",
    ("warm/templates.py", "note_unfit"): "it is found unfit again",
    # The next one that changes the store tries it again, and reports it.
    ("saves/store.py", "list"): "reading needs it not",
    ("saves/store.py", "_finish"): "the save is there",
    ("saves/store.py", "_locked_and_whole"): "a full disk: what comes next frees some",
}
"""The functions that may, each with its reason."""


def classes(tree: ast.AST) -> Iterator[tuple[str, set[str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, {base.id for base in node.bases if isinstance(base, ast.Name)}


def ours() -> set[str]:
    """The names of QuicksandError and of all that descends from it."""
    found = {"QuicksandError"}
    known = dict(
        pair for path in ENGINE.rglob("*.py") for pair in classes(ast.parse(path.read_text()))
    )
    while more := {name for name, bases in known.items() if bases & found} - found:
        found |= more
    return found


class Walk(ast.NodeVisitor):
    """Finds in which functions one of ``errors`` is suppressed, or caught for nothing, or gathered
    and not looked at."""

    def __init__(self, errors: set[str]) -> None:
        self.errors = errors
        self.where = ["module"]
        self.found: list[tuple[str, int]] = []

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.where.append(node.name)
        self.generic_visit(node)
        self.where.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
        if name == "suppress" and any(map(self.is_ours, node.args)):
            self.found.append((self.where[-1], node.lineno))
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
        if any(word.arg == "return_exceptions" for call in calls for word in call.keywords):
            self.found.append((self.where[-1], node.lineno))
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        is_nothing = all(isinstance(line, ast.Pass) for line in node.body)
        if is_nothing and node.type is not None and self.is_ours(node.type):
            self.found.append((self.where[-1], node.lineno))
        self.generic_visit(node)

    def is_ours(self, node: ast.AST) -> bool:
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        return bool(names & self.errors)


def silent(source: str, errors: set[str]) -> list[tuple[str, int]]:
    walk = Walk(errors)
    walk.visit(ast.parse(source))
    return walk.found


def everywhere() -> Iterator[tuple[str, str, int]]:
    names = ours()
    for home, path in ((one, path) for one in HOMES for path in sorted(one.rglob("*.py"))):
        for function, line in silent(path.read_text(), names):
            yield path.relative_to(home).as_posix(), function, line


def test_all_errors_are_known() -> None:
    assert {name for name in errors.__dict__ if name.endswith("Error")} <= ours()


def test_no_error_is_passed_over_in_silence() -> None:
    assert [f"{name}:{line} {function}" for name, function, line in everywhere()
            if (name, function) not in SILENT] == []  # fmt: skip


def test_every_silence_that_is_allowed_is_there_still() -> None:
    assert set(SILENT) == {(name, function) for name, function, _ in everywhere()}


@each(
    "block",
    [
        "with contextlib.suppress(QuicksandError):\n  f()",
        "with suppress(OSError, MachineError):\n  f()",
        "with contextlib.suppress(*(HostError, KeyError)):\n  f()",
        "with open_it(), contextlib.suppress(LockUnusableError):\n  f()",
        "try:\n  f()\nexcept (OSError, AgentError):\n  pass",
        "async def f():\n  await asyncio.gather(g(), return_exceptions=True)",
    ],
)
def test_a_silence_is_found(block: str) -> None:
    assert silent(block, ours())


@each(
    "block",
    [
        "with contextlib.suppress(OSError, ValueError):\n  f()",
        "with best_effort('do it', log, MachineError):\n  f()",
        "try:\n  f()\nexcept MachineError:\n  return None",
        "async def f():\n  found = await gather(g(), return_exceptions=True)",
    ],
)
def test_what_passes_over_nothing_of_ours_passes(block: str) -> None:
    assert silent(block, ours()) == []
