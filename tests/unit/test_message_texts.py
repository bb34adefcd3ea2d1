"""No code decides by the text of a message: what an error says may be worded anew at any time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.each import each

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "engine/quicksand",
    "extras/quicksand_e2b",
    "extras/quicksand_benchmark",
    "extras/quicksand_fleet",
    "quicksand_tui",
    "smb3/quicksand_smb",
    "images/quicksand_disks",
    "images/quicksand_wheels",
    "terminal/quicksand_driver",
    "terminal/quicksand_panes",
    "terminal/quicksand_pixels",
    "terminal/quicksand_vnc",
    "terminal/quicksand_vt",
    "images/quicksand_images",
)

READERS = {
    # A checkpoint may hold an agent that has nothing but its message to say it.
    ("engine/quicksand/guest/agent/refusals.py", "_read_message"),
    # These put words together, and decide nothing but which are there twice.
    ("quicksand_tui/cli/output.py", "complain"),
    ("quicksand_tui/cli/output.py", "complain_of"),
    # Before Python 3.14 tomllib has a line's number in its message only.
    ("quicksand_tui/home/config_file.py", "_parse_toml"),
}
"""The functions that may, each with its reason."""

TEXTS = {"message", "args", "strerror", "msg", "desc", "log"}
"""The attributes of exceptions that are words."""

QUESTIONS = {"startswith", "endswith", "find", "rfind", "index", "rindex", "count", "partition",
             "rpartition", "removeprefix", "removesuffix", "isdigit"}  # fmt: skip
"""The methods of a text whose answer depends on what the text says."""

SEARCHES = {"search", "match", "fullmatch", "findall", "finditer"}
"""The functions and methods of ``re`` that look into a text."""


def is_error(name: str) -> bool:
    return name.endswith(("Error", "Exception", "Refusal"))


class Reader(ast.NodeVisitor):
    """Finds where a function looks into the text of an error. ``error`` is one if it was caught,
    if its annotation says so, or if it is named so; a text that was taken from one counts, too."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []
        self.where = ["module"]
        self.errors: set[str] = {"error", "err", "exc", "failure"}
        self.texts: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = set(self.errors), set(self.texts)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in arguments:
            names = ast.walk(argument.annotation) if argument.annotation else ()
            if any(isinstance(name, ast.Name) and is_error(name.id) for name in names):
                self.errors.add(argument.arg)
        self.where.append(node.name)
        self.generic_visit(node)
        self.where.pop()
        self.errors, self.texts = outer

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.errors.add(node.name)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self.is_text(node.value):
            self.texts |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        if self.is_text(node.value):
            self.texts.add(node.target.id)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if any(self.is_text(side) for side in (node.left, *node.comparators)):
            self.report(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            asks = node.func.attr in QUESTIONS and self.is_text(node.func.value)
            searches = node.func.attr in SEARCHES and any(map(self.is_text, node.args))
            if asks or searches:
                self.report(node)
        self.generic_visit(node)

    def visit_Match(self, node: ast.Match) -> None:
        if self.is_text(node.subject):
            self.report(node)
        self.generic_visit(node)

    def report(self, node: ast.AST) -> None:
        self.found.append((self.where[-1], getattr(node, "lineno", 0)))

    def is_text(self, node: ast.AST) -> bool:
        """Whether an expression is the text of an error."""
        match node:
            case ast.Name(id=name):
                return name in self.texts
            case ast.Call(func=ast.Name(id="str" | "repr" | "text_of"), args=[ast.Name(id=name)]):
                return name in self.errors
            case ast.Call(func=ast.Attribute(value=value, attr="lower" | "strip" | "casefold")):
                return self.is_text(value)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                return name in self.errors and attribute in TEXTS
            case ast.Subscript(value=value):
                return self.is_text(value)
            case ast.JoinedStr(values=values):
                return any(
                    isinstance(part, ast.FormattedValue)
                    and isinstance(part.value, ast.Name)
                    and part.value.id in self.errors
                    for part in values
                )
        return False


def readers(source: str) -> list[tuple[str, int]]:
    reader = Reader()
    reader.visit(ast.parse(source))
    return reader.found


def everywhere() -> Iterator[tuple[str, str, int]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            for function, line in readers(path.read_text()):
                yield name, function, line


def test_nothing_decides_by_what_an_error_says() -> None:
    found = list(everywhere())
    assert [f"{name}:{line} {function}" for name, function, line in found
            if (name, function) not in READERS] == []  # fmt: skip


def test_every_reader_that_is_allowed_is_there_still() -> None:
    """The reader of the agent's messages gets a plain object, which the walk takes for no error."""
    found = {(name, function) for name, function, _ in everywhere()}
    assert READERS - found == {("engine/quicksand/guest/agent/refusals.py", "_read_message")}


@each(
    "line",
    [
        'str(error).endswith("(os error 112)")',
        '"no such method" in str(error)',
        'error.message == "busy"',
        'not str(error).lower().startswith("command ")',
        're.search("line", str(error))',
        'error.args[0] == "busy"',
        'f"{error}" == "busy"',
        '(text := str(error)) and "busy" in text',
    ],
)
def test_a_comparison_is_found(line: str) -> None:
    caught = f"try:\n    f()\nexcept OSError as error:\n    g({line})\n"
    assert readers(caught)
    assert readers(f"def f(error: AgentRefusedError | None) -> bool:\n    return {line}\n")


@each(
    "line",
    ['error.errno == 2', 'error.code in ("busy",)', 'print(f"it failed: {error}")',
     'words.startswith("command ")', 'str(error).splitlines()[0]'],
)  # fmt: skip
def test_what_is_no_comparison_of_words_passes(line: str) -> None:
    assert readers(f"try:\n    f()\nexcept OSError as error:\n    g({line})\n") == []
