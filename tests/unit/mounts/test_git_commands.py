"""What the configuration of a repository names is known, and git itself says the same."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from quicksand.mounts import git_commands
from quicksand.mounts.git_commands import find_commands, parse
from quicksand_smb.config import ShareConfig
from quicksand_smb.ledger import Ledger
from quicksand_smb.server_state import open_share
from quicksand_smb.store import Disposition, OpenOptions, Reason, StoreError
from quicksand_smb.trigger_report import TriggerReport

TEXT = """\ufeff[core] hooksPath = .githooks ; a comment
\tattributesFile = "a \\"b\\" # c" # d
[include]
    path = ../team.gitconfig
[Filter "x"]
\tclean = tools/clean \\
 --now
[alias]
    st = "!./bin/st.sh;\\tx"
    flag
[includeIf "gitdir:~/a\\"]b/"] path=x
[old.Style] KEY = v\x20
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "GIT_DIR", "GIT_CONFIG_GLOBAL"):
        monkeypatch.delenv(name, raising=False)


def git(at: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=at, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    at = tmp_path / "project"
    at.mkdir()
    git(at, "init", "-q")
    return at


def found(root: Path) -> set[str]:
    return {os.path.relpath(path, root) for path in find_commands(str(root))}


def test_configuration_is_read_as_git_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(TEXT)
    listed = git(tmp_path, "config", "-f", str(file), "-z", "--list").split("\0")[:-1]
    expected = []
    for one in listed:
        name, has_value, value = one.partition("\n")
        if has_value:
            section, _, rest = name.partition(".")
            expected.append((section, rest.rpartition(".")[2], value))
    assert [(one.section, one.key, one.value) for one in parse(TEXT)] == expected


def test_what_is_no_configuration_ends_the_reading_of_nothing() -> None:
    bad = ["[", "[a", "=", "a=", '[a "', '[a]\nb="', "\\", "[a]\nb=\\", "]]]\n[core]\nx=1", "\0"]
    for text in bad:
        list(parse(text))
    assert [one.value for one in parse("???\n[core]\nx=1")] == ["1"]


def test_what_the_configuration_names_is_found(repository: Path) -> None:
    (repository / "process.py").write_text("")
    for key, value in (
        ("core.hooksPath", ".hooks-of-ours"),
        ("include.path", "../team.gitconfig"),
        ("includeIf.onbranch:x.path", str(repository / "absolute.gitconfig")),
        ("core.fsmonitor", "tools/monitor"),
        ("core.sshCommand", "ssh -F ./ssh/config"),
        ("filter.x.smudge", "python3 process.py %f"),
        ("diff.x.textconv", "'tools/my conv'"),
        ("merge.x.driver", "LANG=C tools/merge %A"),
        ("gpg.program", "tools/gpg"),
        ("alias.st", "!sh tools/st.sh"),
        ("credential.https://x.helper", "!tools/helper"),
        ("remote.origin.url", "https://example.com/a/b"),
        ("core.pager", "less -R"),
        ("branch.main.merge", "refs/heads/main"),
    ):
        git(repository, "config", key, value)
    (repository / "team.gitconfig").write_text("[include]\npath = more/deep.gitconfig\n")
    (repository / "more").mkdir()
    (repository / "more" / "deep.gitconfig").write_text("[diff]\nexternal = tools/external\n")
    assert found(repository) >= {
        *(".hooks-of-ours", "team.gitconfig", "absolute.gitconfig", "tools/monitor", "ssh/config"),
        *("process.py", "tools/merge", "tools/gpg", "tools/st.sh", "tools/helper"),
        *("more/deep.gitconfig", "tools/external"),
    }
    assert not any(
        "example" in path or "refs" in path or "less" in path for path in found(repository)
    )


def test_worktrees_submodules_and_a_git_directory_elsewhere(
    tmp_path: Path, repository: Path
) -> None:
    (tmp_path / "lib").mkdir()
    git(repository, "init", "-q", "--separate-git-dir", str(tmp_path / "lib" / "store"))
    git(repository, "config", "core.hooksPath", "h")
    assert {"lib/store/hooks", "lib/store/config", "project/h"} <= found(tmp_path)
    of_module = tmp_path / "lib" / "store" / "modules" / "m"
    of_module.mkdir(parents=True)
    (of_module / "HEAD").write_text("ref: refs/heads/main\n")
    (of_module / "config").write_text("[core]\nfsmonitor = mod/monitor\n")
    assert "project/mod/monitor" in found(tmp_path)


def test_a_repository_above_and_the_settings_of_the_user_count(
    tmp_path: Path, repository: Path
) -> None:
    (repository / "src").mkdir()
    git(repository, "config", "core.hooksPath", "src/hooks")
    (tmp_path / "home" / ".gitconfig").write_text("[core]\nfsmonitor = src/monitor\n")
    assert found(repository / "src") == {"hooks", "monitor"}


def test_hooks_beside_all_else_are_protected_and_the_rest_is_not(repository: Path) -> None:
    git(repository, "config", "core.hooksPath", ".")
    assert "pre-commit" in found(repository)
    assert "." not in found(repository)


def test_a_link_on_the_way_is_protected_with_where_it_leads(repository: Path) -> None:
    git(repository, "config", "core.hooksPath", "link")
    (repository / "real").mkdir()
    os.symlink("real", repository / "link")
    assert {"link", "real"} <= found(repository)


def test_reading_is_bounded(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = repository / ".git" / "config"
    config.write_text("[include]\npath = config\n" * 50)
    assert found(repository) == {".git/config"}, "a circle"
    config.unlink()
    os.mkfifo(config)
    assert found(repository) == set(), "and nothing is waited for"
    config.unlink()
    config.write_text("".join(f"[core]\nfsmonitor = a/{n}\n" for n in range(1000)))
    assert len(found(repository)) == git_commands.FOUND_MAX
    monkeypatch.setattr(git_commands, "BYTES_MAX", 100)
    assert len(found(repository)) < 10


@pytest.mark.parametrize("is_protected", [True, False])
def test_the_guest_changes_none_of_it_or_it_is_told(
    repository: Path, is_protected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository, "config", "core.hooksPath", "tools/hooks")
    (repository / "tools" / "hooks").mkdir(parents=True)
    (repository / "evil").mkdir()
    told: list[tuple[str, ...]] = []
    report = TriggerReport()
    monkeypatch.setattr(report, "record", told.append)
    commands = find_commands(str(repository))
    wanted = ShareConfig("S", str(repository), False, is_protected, None, commands)
    share = open_share(wanted, str(repository), Ledger(), report)
    assert share is not None
    hook = ("tools", "hooks", "pre-commit")
    make = OpenOptions(write=True, disposition=Disposition.CREATE)
    if is_protected:
        with pytest.raises(StoreError) as refused:
            share.store.open(hook, make)
        assert refused.value.reason is Reason.READ_ONLY
        with pytest.raises(StoreError):
            share.store.rename(("tools",), ("moved",), replace=False)
    else:
        share.store.open(hook, make)[0].close()
        assert told == [hook]
    share.store.open(("evil", "pre-commit"), make)[0].close()
    share.store.open(("tools", "other"), make)[0].close()
    share.store.close()
