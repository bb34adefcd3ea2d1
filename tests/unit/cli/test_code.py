"""What `code` says of guests, and the command of an editor."""

from __future__ import annotations

from collections.abc import Mapping

from quicksand.records.machine_options import parse_memory

from quicksand_tui.cli.ssh.code import Guest, advice, command_of_editor, home_in, problems
from tests.each import each

FINE = {
    **{"os": "Linux", "arch": "x86_64", "glibc": "2.41", "disk": "4000000"},
    **dict.fromkeys(("bash", "tar", "curl", "wget"), "yes"),
}


def said(
    other: Mapping[str, str] = FINE,
    *,
    has_network: bool = True,
    editor: str = "code",
    memory: str = "2G",
) -> list[str]:
    found = {key: value for key, value in {**FINE, **other}.items() if value}
    guest = Guest(found, has_network, parse_memory(memory))
    return [*problems(guest, editor), *advice(guest, editor)]


def test_of_a_guest_that_has_all_nothing_is_said() -> None:
    assert said() == []


@each(
    ("other", "words"),
    [
        ({"arch": "riscv64"}, "no server for a guest of riscv64"),
        ({"arch": ""}, "an unknown processor"),
        ({"glibc": ""}, "apk add"),
        ({"glibc": "2.27"}, "needs 2.28"),
        ({"bash": ""}, "no bash"),
        ({"tar": ""}, "no tar"),
        ({"disk": "1000"}, "0 MiB left"),
        ({"curl": "", "wget": ""}, "neither curl nor wget"),
    ],
)
def test_what_is_missing_is_said(other: dict[str, str], words: str) -> None:
    (line,) = said(other)
    assert words in line


def test_without_network_the_editor_has_to_upload_its_server() -> None:
    (line,) = said(has_network=False)
    assert '"remote.SSH.localServerDownload": "always"' in line
    assert said(has_network=False, editor="zed") == []


def test_numbers_that_make_no_sense_are_passed_over() -> None:
    assert said({"disk": "x" * 99}) == []
    assert said({"disk": "-1"}) == []


@each(
    ("editor", "memory", "wants"),
    [
        ("code", "512M", "wants 1 GiB, better 2"),
        ("code", "1G", ""),
        ("zed", "512M", ""),
        ("jetbrains", "1G", "wants 2 GiB or more"),
        ("jetbrains", "2G", ""),
    ],
)
def test_each_editor_wants_an_amount_of_memory_of_its_own(
    editor: str, memory: str, wants: str
) -> None:
    lines = said(editor=editor, memory=memory)
    assert len(lines) == bool(wants)
    assert all(wants in line and "run --memory 2G" in line for line in lines)


def test_a_guest_of_musl_is_no_problem_but_for_vs_code() -> None:
    lacking = {"glibc": "", "bash": "", "curl": "", "wget": ""}
    assert said(lacking, editor="zed") == said(lacking, editor="jetbrains") == []
    assert len(said(lacking)) == 3


def test_the_command_opens_a_directory_of_the_host() -> None:
    assert command_of_editor("code", "web.qs", "/root") == [
        *("code", "--remote", "ssh-remote+web.qs", "/root"),
    ]
    assert command_of_editor("zed", "web.qs", "src")[-1] == "ssh://web.qs/src"


@each("told", ["--install-extension=/tmp/x.vsix", "-r", "", "x", "/a\x1b[2J"])
def test_a_home_that_is_no_path_is_not_given_to_an_editor(told: str) -> None:
    """A guest says what it likes; the editor runs on this host."""
    assert home_in(told) == "/"
    assert home_in("/home/joe") == "/home/joe"


def test_no_directory_is_an_option_of_an_editor() -> None:
    for editor in ("code", "zed"):
        assert not command_of_editor(editor, "web.qs", "--wait")[-1].startswith("-")
    assert command_of_editor("zed", "web.qs", "/a?b#c d")[-1] == "ssh://web.qs/a%3Fb%23c%20d"
