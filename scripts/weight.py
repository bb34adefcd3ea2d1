"""Counts the things that a person must keep in mind to work on engine and app, and compares them
with the limits in `weight.toml`.

    python scripts/weight.py [--write]

With ``--write``, the present figures become the limits. A test lets none of them grow.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = ROOT / "scripts" / "weight.toml"
ENGINE, APP = ROOT / "engine" / "quicksand", ROOT / "quicksand_tui"
SHARED_NAMES = {"__init__.py", "__main__.py", "errors.py", "wire.py"}
"""File names that may occur in several rooms."""


def figures() -> dict[str, int]:
    """Returns the figures by their names in `weight.toml`."""
    files = sorted([*ENGINE.rglob("*.py"), *APP.rglob("*.py")])
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
    of_app = [tree for path, tree in trees.items() if path.is_relative_to(APP)]
    names = Counter(path.name for path in files if path.name not in SHARED_NAMES)
    docstrings = [text for tree in trees.values() for text in _docstrings(tree)]
    return {
        "lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files),
        "files": len(files),
        "cli_files": sum(path.is_relative_to(APP / "cli") for path in files),
        "files_that_share_their_name": sum(count for count in names.values() if count > 1),
        "protocol_members_of_the_app": sum(map(_protocol_members, of_app)),
        "callables_in_constructors_of_the_app": sum(map(_callables_in_constructors, of_app)),
        "docstrings_that_begin_with_what": sum(text.startswith("What ") for text in docstrings),
    }


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _name(base: ast.expr) -> str:
    return ast.unparse(base).partition("[")[0]


def _protocol_members(tree: ast.Module) -> int:
    protocols = [
        one for one in _classes(tree) if any("Protocol" in ast.unparse(b) for b in one.bases)
    ]
    members = (ast.FunctionDef, ast.AsyncFunctionDef, ast.AnnAssign)
    return sum(isinstance(node, members) for one in protocols for node in one.body)


def _callables_in_constructors(tree: ast.Module) -> int:
    return sum(
        argument.annotation is not None and "Callable" in ast.unparse(argument.annotation)
        for one in _classes(tree)
        for node in one.body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        for argument in (*node.args.args, *node.args.kwonlyargs)
    )


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Yields the docstrings, including those below assignments."""
    lines = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    texts = (line.value for line in lines if isinstance(line, ast.Constant))
    yield from (text for text in texts if isinstance(text, str))


def read_limits() -> dict[str, int]:
    """Returns the limits by their names."""
    return {name: int(most) for name, most in tomllib.loads(LIMITS.read_text()).items()}


def main() -> int:
    found = figures()
    if sys.argv[1:] == ["--write"]:
        LIMITS.write_text("".join(f"{name} = {count}\n" for name, count in found.items()))
    limits = read_limits()
    for name, count in found.items():
        sys.stdout.write(f"{name.replace('_', ' '):45}{count:8}  (at most {limits[name]})\n")
    return int(any(count > limits[name] for name, count in found.items()))


if __name__ == "__main__":
    sys.exit(main())
