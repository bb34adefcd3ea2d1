"""The config: whatever is in it, what is valid counts and the rest is told by its line."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from quicksand_tui.actions.all_actions import ACTIONS, default_keymap
from quicksand_tui.home.config_file import (
    SETTINGS,
    SIZE_MAX,
    Config,
    ConfigFile,
    Settings,
    check_theme,
    example_config,
    parse_config,
    read_config,
)
from tests.each import each


def problems_of(text: str) -> list[str]:
    return [problem.text for problem in parse_config(text).problems]


def test_an_empty_config_sets_nothing() -> None:
    loaded = parse_config("")
    assert loaded.problems == ()
    assert loaded.config == Config()


def test_everything_can_be_set() -> None:
    loaded = parse_config(
        """
        theme = "nord"
        ascii = true
        mouse = false
        read_only = true
        look_every_s = 2
        memory_dir = "/fast"
        prefix = "ctrl-a"
        [keys]
        stop = "E"
        "main.undo" = ["Z", "f8"]
        log.back = "b"
        """
    )
    assert loaded.problems == ()
    config = loaded.config
    assert (config.theme, config.ascii, config.mouse) == ("nord", True, False)
    assert (config.read_only, config.look_every_s) == (True, 2.0)
    assert config.memory_dir == "/fast"
    assert config.prefix.data == b"\x01" == config.keymap.prefix.data
    assert config.keymap.changes_from(default_keymap()) == {
        "main.stop": "E",
        "main.undo": "Z,f8",
        "log.back": "b,escape",
    }


@each(
    ("text", "problem"),
    [
        ("\nthem = 'x'", "line 2: them: there is no such setting; did you mean theme?"),
        ("mouse = 'yes'", "line 1: mouse: 'yes' is not true or false"),
        ("look_every_s = 0", "line 1: look_every_s: 0 is no number of seconds from 0.1 to 60"),
        ("look_every_s = true", "look_every_s: true is no number"),
        ("look_every_s = nan", "look_every_s: nan is no number"),
        ("memory_dir = 'fast'", "memory_dir: 'fast' is no absolute path in quotes"),
        ("memory_dir = 7", "memory_dir: 7 is no absolute path in quotes"),
        ("prefix = 'ctrl-i'", "line 1: prefix: 'ctrl-i' is what a terminal sends for tab"),
        ("prefix = 'x'", "is no prefix"),
        ("theme = 3", "line 1: theme: 3 is no text in quotes"),
        ("keys = 3", "line 1: keys: 3 is no table"),
        ("[keys]\nstop = 3", "line 2: keys.stop: 3 is no key"),
        ("[keys]\n\nstop = ['x', 3]", "line 3: keys.stop: ['x', 3] is no key"),
        ("[keys]\nlog.stop = 'x'", "line 2: keys.log.stop: there is no such action"),
        ("[keys.main]\nstop = 'd'", "line 2: keys.main.stop: d is the key of main.delete"),
        ("mouse = \x00", "line 1: this is no TOML"),
    ],
)
def test_a_problem_names_line_key_and_what_would_do(text: str, problem: str) -> None:
    (found,) = problems_of(text)
    assert problem in found


def test_what_is_valid_counts_beside_what_is_not() -> None:
    loaded = parse_config("ascii = true\nmouse = 3\nread_only = true\n[keys]\nstop = 'E'\nx = 1\n")
    assert len(loaded.problems) == 2
    assert loaded.config.ascii and loaded.config.mouse and loaded.config.read_only
    assert loaded.config.keymap.hint("stop") == "E"


def test_above_what_is_no_toml_everything_counts() -> None:
    loaded = parse_config("read_only = true\nmouse = false\nwhat is this\nascii = true\n")
    assert [problem.line for problem in loaded.problems] == [3]
    assert loaded.config == Config(read_only=True, mouse=False)


def test_a_theme_that_is_not_there_is_left_out() -> None:
    loaded = check_theme(parse_config("theme = 'nrod'"), ["nord", "quicksand"])
    assert loaded.config.theme == ""
    assert [problem.text for problem in loaded.problems] == [
        "line 1: theme: there is no theme 'nrod'; did you mean nord?"
    ]
    assert check_theme(parse_config("theme = 'nord'"), ["nord"]).problems == ()


@given(st.text(max_size=300))
def test_no_text_is_too_odd(text: str) -> None:
    for problem in parse_config(text).problems:
        assert problem.text.isprintable()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    )
)
def test_no_value_is_too_odd(value: object) -> None:
    shown = "''" if value is None else repr(value).replace("True", "true").replace("False", "false")
    for name in (*(setting.name for setting in SETTINGS), "keys", "keys.stop", "keys.log.back"):
        parse_config(f"{name} = {shown}")


def test_the_example_is_a_config_and_tells_what_is_so_anyway() -> None:
    example = example_config()
    assert parse_config(example).config == Config()
    lines = [line.removeprefix("# ") for line in example.splitlines()]
    used = "\n".join(line for line in lines if " = " in line or line == "[keys]")
    loaded = parse_config(used.replace('help = ["?", "f1"]\n', "", 1))
    assert loaded.problems == ()
    assert loaded.config.keymap == default_keymap()
    named = tomllib.loads(used.replace('help = ["?", "f1"]\n', "", 1))["keys"]
    assert {f"{scope}.{name}" for scope in named for name in named[scope]} == {
        action.address for action in ACTIONS
    }


def test_the_example_of_the_guide_is_right() -> None:
    guide = Path(__file__).parents[3] / "docs" / "user-guide" / "config.md"
    (text,) = re.findall(r"```toml\n(.*?)```", guide.read_text(), re.DOTALL)
    loaded = parse_config(text)
    assert loaded.problems == ()
    assert loaded.config.keymap.hint("undo") == "Z"


def test_the_guide_names_every_setting() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "user-guide" / "config.md").read_text()
    for setting in SETTINGS:
        assert f"| `{setting.name}` |" in guide


# The file


def test_no_file_sets_nothing_unless_it_was_named(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert read_config(path).problems == ()
    (problem,) = read_config(path, must_exist=True).problems
    assert problem.text == f"{path} cannot be read: there is no such file"


def test_what_cannot_be_read_is_told_of(tmp_path: Path) -> None:
    large, odd, pipe = tmp_path / "large", tmp_path / "odd", tmp_path / "pipe"
    large.write_text("#" * (SIZE_MAX + 1))
    odd.write_bytes(b"mouse = true\n# \xff\n")
    os.mkfifo(pipe)
    expected = {
        large: "larger than 64 KiB",
        odd: "line 2: this is not UTF-8",
        pipe: "is no file",
        tmp_path: "is no file",
        Path("\0"): "null",
    }
    for path, words in expected.items():
        (problem,) = read_config(path).problems
        assert words in problem.text


def test_a_change_is_seen_once(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    file = ConfigFile(path)
    assert file.read().config == Config()
    assert file.read_if_changed() is None
    path.write_text("mouse = false")
    loaded = file.read_if_changed()
    assert loaded is not None and not loaded.config.mouse
    assert file.read_if_changed() is None
    path.unlink()
    loaded = file.read_if_changed()
    assert loaded is not None and loaded.config.mouse


def test_what_counts_only_from_the_next_start_is_said(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    settings = Settings(ConfigFile(path))
    path.write_text("read_only = true\nmouse = false\nlook_every_s = 3")
    settings.look()
    told = settings.take_change(())
    assert told == "The config was read again; at the next start mouse, read_only"
    assert not settings.read_only and settings.config.look_every_s == 3
    assert settings.take_change(()) is None


def test_the_option_makes_it_read_only_whatever_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("read_only = false")
    assert Settings(ConfigFile(path), read_only=True).read_only
