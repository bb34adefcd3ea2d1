"""Verbs of packages beside the program: they enter by entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quicksand_tui.verbs.index import SECTIONS

VERB = """
from quicksand_tui.plugins import Kind, argument, command

GREET = command("greet", "planted.functions", "Greet somebody.",
    argument("whom", Kind.TEXT, "WHOM"), after="ps")
"""
FUNCTIONS = """
import click
from quicksand_tui.plugins import command_of

@command_of("greet")
def greet(whom: str) -> None:
    '''Greet somebody by name.'''
    click.echo(f"hello {whom}")
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with an installed package that has the verb `greet`."""
    package, metadata = tmp_path / "planted", tmp_path / "planted-1.dist-info"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "verb.py").write_text(VERB)
    (package / "functions.py").write_text(FUNCTIONS)
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[quicksand_tui.verbs]\ngreet = planted.verb\n")
    return tmp_path


def run(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "quicksand_tui", *words],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_verb_of_another_package_is_a_command_like_ours(site: Path) -> None:
    assert run(site, "greet", "ann").stdout == "hello ann\n"
    assert "Greet somebody by name." in run(site, "greet", "--help").stdout


def test_it_stands_in_the_help_behind_the_verb_that_it_follows(site: Path) -> None:
    lines = run(site, "--help").stdout.splitlines()
    found = [line.split()[0] for line in lines if line.startswith("  ") and line.split()]
    assert found[found.index("ps") + 1] == "greet"


def test_a_name_of_ours_stays_ours(site: Path) -> None:
    metadata = site / "planted-1.dist-info" / "entry_points.txt"
    metadata.write_text("[quicksand_tui.verbs]\nps = planted.verb\n")
    assert "List" in run(site, "ps", "--help").stdout


def test_a_package_that_cannot_be_loaded_leaves_the_others_their_help(site: Path) -> None:
    (site / "planted" / "verb.py").write_text("import nowhere_at_all")
    helped = run(site, "--help")
    assert helped.returncode == 0
    assert "(cannot be loaded: No module named 'nowhere_at_all')" in helped.stdout
    assert "ps" in helped.stdout.split()


def test_a_command_of_ours_looks_for_no_others() -> None:
    code = (
        "import sys; from quicksand_tui.cli.main import run; run(['ps', '--help']); "
        "assert 'importlib.metadata' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_the_program_names_no_verb_of_an_extra() -> None:
    ours = {name for section in SECTIONS.values() for _, names in section for name in names.split()}
    assert "api" not in ours
