"""Modules and functions are short enough to be read at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.each import each
from tests.unit.test_house import PACKAGES, modules

MODULE_MAX = 700
"""Lines, documentation and all. A module is one idea, which is seldom longer."""
FUNCTION_MAX = 60
"""Lines from ``def`` to the end, its documentation included and decorators not."""


def long_modules(packages: Mapping[str, Path]) -> dict[str, int]:
    """The modules of these packages that are too long, with their lines."""
    lengths = {name: len(path.read_text().splitlines()) for name, path in modules(packages).items()}
    return {name: n for name, n in lengths.items() if n > MODULE_MAX}


def long_functions(packages: Mapping[str, Path]) -> dict[str, int]:
    """The functions of these packages that are too long, with their lines."""
    return {
        f"{name}.{function}": length
        for name, path in modules(packages).items()
        for function, length in _lengths(ast.parse(path.read_text()))
        if length > FUNCTION_MAX
    }


def _lengths(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            yield node.name, node.end_lineno - node.lineno + 1


def test_no_module_is_too_long() -> None:
    assert not long_modules(PACKAGES), "find the second idea in it, and give it a module"


def test_no_function_is_too_long() -> None:
    assert not long_functions(PACKAGES)


@each(("more", "is_found"), [(0, False), (1, True)])
def test_what_is_a_line_too_long_is_found(more: int, is_found: bool, tmp_path: Path) -> None:
    body = "    pass\n" * (FUNCTION_MAX - 1 + more)
    (tmp_path / "one.py").write_text(f"class A:\n  @staticmethod\n  async def f():\n{body}")
    (tmp_path / "two.py").write_text("x = 1\n" * (MODULE_MAX + more))
    planted = {"planted": tmp_path}
    assert ("planted.one.f" in long_functions(planted)) is is_found
    assert ("planted.two" in long_modules(planted)) is is_found
