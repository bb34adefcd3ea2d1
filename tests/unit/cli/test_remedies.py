"""A remedy is data, and each face says it in its own words; the engine's own face is Python."""

from __future__ import annotations

import ast
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any, get_args

import click
import pytest
from quicksand import Sandbox
from quicksand.base.errors import DiskSpaceError, QuicksandError, StateError
from quicksand.base.remedies import FREE_SPACE, PYTHON, Remedy, Verb, Words

from quicksand_tui.cli.click_commands import load
from quicksand_tui.model.remedy_words import COMMANDS, as_command, hint_of, text_of
from quicksand_tui.verbs.index import find_verb
from tests.each import each

ROOT = Path(__file__).parents[3]

SPEAKERS = {
    # The name of our distribution.
    "engine/quicksand/base/version.py": 1,
    # The words of the command line, which only the command line asks for.
    "engine/quicksand/life/spare_names.py": 1,
}
"""The modules of the engine that may name the command, and how often."""

START = Words(Remedy("start", name="web"), " starts it")


def texts(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_python_is_told_python() -> None:
    error = StateError("it is not running", hint=START)
    assert error.hint == "`Sandbox.open('web').start()` starts it"


def test_the_command_line_is_told_a_command() -> None:
    error = StateError("it is not running", hint=START)
    assert hint_of(error) == "`quicksand-tui start web` starts it"
    assert text_of(error) == "it is not running"


def test_a_hint_without_a_remedy_is_the_same_everywhere() -> None:
    error = StateError("x", hint="load kvm_intel")
    assert error.hint == hint_of(error) == "load kvm_intel"
    assert StateError("x").hint == hint_of(StateError("x")) == hint_of(OSError("x")) == ""


def test_a_message_with_a_remedy_is_said_in_words_of_the_face_even_within_another() -> None:
    inner = QuicksandError(Words("no image; ", Remedy("build_image", name="d")))
    outer = QuicksandError(Words("the save cannot be used: ", inner.words))
    assert str(outer) == "the save cannot be used: no image; `quicksand_images.build_image('d')`"
    said = text_of(outer)
    assert said == "the save cannot be used: no image; `quicksand-tui images build d`"


def test_what_has_no_call_in_python_is_said_otherwise() -> None:
    words = Words("stop it, or ", Words(Remedy("setup"), python="install QEMU"))
    assert str(words) == "stop it, or install QEMU"
    assert words.said(as_command) == "stop it, or `quicksand-tui setup`"


def test_a_name_is_no_pattern() -> None:
    words = Words("{name!r} {", Remedy("start", name="{at}"))
    assert words.said(as_command) == "{name!r} {`quicksand-tui start '{at}'`"
    assert str(words) == "{name!r} {`Sandbox.open('{at}').start()`"


def test_a_hint_may_be_replaced_by_text() -> None:
    error = StateError("x", hint=START)
    error.hint = "wait"
    assert error.hint == hint_of(error) == "wait"


@each("error", [StateError("x", hint=START), DiskSpaceError("no space")])
def test_errors_keep_it_on_their_way_to_another_process(error: QuicksandError) -> None:
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.hint, hint_of(copied)) == (error.hint, hint_of(error))


def test_words_survive_json() -> None:
    for words in (FREE_SPACE, START, Words("a", Words(Remedy("setup"), python="b"))):
        assert Words.from_json(json.loads(json.dumps(words.to_json()))) == words


@each(
    "value",
    [{}, {"parts": 1, "python": ""}, {"parts": [1], "python": ""},
     {"parts": [{"verb": "no such", "args": {}}], "python": ""},
     {"parts": [{"verb": "du", "args": 1}], "python": ""}],
)  # fmt: skip
def test_what_are_no_words_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no words"):
        Words.from_json(value)


def fields(pattern: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(pattern) if name}


def test_each_verb_has_a_command_and_asks_both_faces_for_the_same() -> None:
    assert set(COMMANDS) == set(get_args(Verb))
    assert set(PYTHON) < set(COMMANDS)
    extra = {"checkpoint_without_9p"}  # in Python it is the call that has just failed
    for verb, call in PYTHON.items():
        assert verb in extra or fields(call) == fields(COMMANDS[verb]), verb


@each("verb", sorted(COMMANDS))
def test_each_command_is_one(verb: str) -> None:
    first, *words = (
        COMMANDS[verb]
        .format(name="web", id="a1", at="clean", key="esc", arch="arm64", file="f")
        .split()
    )
    command: click.Command = load(find_verb(first))
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            break
        command = found
        del words[0]
    options = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    assert {word for word in words if word.startswith("-")} <= options


@each("call", sorted(PYTHON.values()))
def test_each_call_is_python(call: str) -> None:
    source = call.format(name="web", id="a1", at="clean", arch="arm64", file="f").strip("`")
    tree = ast.parse(source, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Attribute):
            name = ast.unparse(node.value)
            if name.startswith("Sandbox"):
                assert hasattr(Sandbox, node.attr), source


def test_every_remedy_is_there_for_users_of_python() -> None:
    """Those without a call in Python stand only in words that say something else."""
    for path in sorted((ROOT / "engine/quicksand").rglob("*.py")):
        tree = ast.parse(path.read_text())
        for words in ast.walk(tree):
            if not (isinstance(words, ast.Call) and getattr(words.func, "id", "") == "Words"):
                continue
            says_otherwise = any(keyword.arg == "python" for keyword in words.keywords)
            for part in words.args:
                if isinstance(part, ast.Call) and getattr(part.func, "id", "") == "Remedy":
                    assert isinstance(part.args[0], ast.Constant)
                    verb = part.args[0].value
                    assert says_otherwise or verb in PYTHON, f"{path}:{part.lineno} {verb!r}"


def test_a_hint_that_is_no_words_has_no_option_of_the_command_line_alone() -> None:
    found = []
    for path in sorted((ROOT / "engine/quicksand").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                says = ast.unparse(node.value)
                if "Words(" not in says and re.search(r"[ `(]--[a-z]", says) and "=" not in says:
                    found.append(f"{path}:{node.lineno} {says}")
    assert found == []


def test_the_engine_names_no_command() -> None:
    found = {}
    for package in ("engine/quicksand", "images/quicksand_images"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.parent.name == "remote":
                continue  # that is about the program at another machine
            if count := sum("quicksand-tui" in text for text in texts(path)):
                found[path.relative_to(ROOT).as_posix()] = count
    assert found == SPEAKERS
