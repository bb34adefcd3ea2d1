"""The manual says what the commands say."""

from __future__ import annotations

import re
from pathlib import Path

import click

from quicksand_tui import __version__
from quicksand_tui.cli.click_commands import cli, load
from quicksand_tui.cli.output import PROGRAM
from quicksand_tui.verbs.index import all_verbs, find_verb
from scripts import manual
from tests.each import each

PAGES = manual.man_pages()
MACROS = {".TH", ".SH", ".SS", ".PP", ".TP", ".RS", ".RE", ".nf", ".fi", ".B"}


def options_of(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option)]


def plain(page: str) -> str:
    """A page without its macros and with its text on one line."""
    text = page.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")
    text = re.sub(r"\\\[u([0-9A-F]+)\]", lambda found: chr(int(found[1], 16)), text)
    return " ".join(re.sub(r"\\f[BPR]", "", text).split())


def words(text: str) -> str:
    return " ".join(text.replace("`", "").split())


def test_there_is_a_page_for_the_program_and_for_each_verb() -> None:
    expected = {f"{PROGRAM}.1", *(f"{PROGRAM}-{verb.name}.1" for verb in all_verbs())}
    assert set(PAGES) == expected


@each("name", [found.name for verb in all_verbs() for found in verb.walk()])
def test_a_page_has_the_help_and_every_option_of_the_command(name: str) -> None:
    verb = name.partition(" ")[0]
    command = load(find_verb(name))
    page = plain(PAGES[f"{PROGRAM}-{verb}.1"])
    assert words((command.help or "").partition("\n")[0]) in page
    for found in options_of(command):
        for flag in (*found.opts, *found.secondary_opts):
            assert flag in page.split() or f"{flag}," in page.split()
        assert words(found.help or "") in page


def test_the_main_page_has_the_options_of_the_app_and_all_commands() -> None:
    page = plain(PAGES[f"{PROGRAM}.1"])
    for found in options_of(cli):
        assert found.opts[0] in page
        assert words(found.help or "") in page
    for verb in all_verbs():
        assert words(verb.summary) in page


@each("name", PAGES)
def test_a_page_is_ascii_and_only_macros_begin_with_a_full_stop(name: str) -> None:
    page = PAGES[name]
    assert page.isascii()
    assert f"{PROGRAM} {__version__}" in page.splitlines()[0]
    begun = {line.split()[0] for line in page.splitlines() if line[:1] in (".", "'")}
    assert begun <= MACROS


@each(
    ("text", "said"),
    [
        (".TH x", "\\&.TH x"),
        ("'quoted", "\\&'quoted"),
        ("a\\b", "a\\eb"),
        ("use `run --cold` …", "use \\fBrun \\-\\-cold\\fP [u2026]".replace(" [", " \\[")),
        ("a ` alone", "a ` alone"),
        ("two\n.lines", "two\n\\&.lines"),
    ],
)
def test_what_means_something_to_roff_is_escaped(text: str, said: str) -> None:
    assert manual._roff(text) == said


def test_what_means_something_to_markdown_is_escaped_outside_of_code() -> None:
    assert manual._markdown_text("a*b <x> `c*d|e` [f]") == "a\\*b \\<x\\> `c*d|e` \\[f\\]"


def test_the_variables_that_are_documented_exist() -> None:
    root = Path(manual.ROOT)
    sources = [*root.glob("engine/**/*.py"), *root.glob("quicksand_tui/**/*.py")]
    text = "\n".join(path.read_text() for path in sources)
    # Settings are named without their prefix in base/settings.py.
    assert [name for name in manual.ENVIRONMENT if name not in text] == []
