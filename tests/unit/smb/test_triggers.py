"""What programs of the host run or obey is known by its name, and nothing else is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand_smb.names import Names
from quicksand_smb.store import Store
from quicksand_smb.store_errors import Reason
from quicksand_smb.store_types import Disposition, FileKind, OpenOptions
from quicksand_smb.triggers import KNOWN, Triggers

from tests.each import each
from tests.unit.smb.conftest import StoreMaker
from tests.unit.smb.files_of_stores import Raises

MAKE = OpenOptions(write=True, disposition=Disposition.CREATE)
MAKE_DIRECTORY = OpenOptions(directory=True, disposition=Disposition.CREATE, mode=0o755)
REWRITE = OpenOptions(write=True, disposition=Disposition.OVERWRITE_IF)
WRITE = OpenOptions(write=True, read=True)


def names(path: str) -> Names:
    return tuple(path.split("/"))


@each(
    "path",
    [
        *(".git/hooks/pre-commit", "a/b/.git/config", ".GIT/Hooks/x", ".git/config.lock"),
        *(".git/worktrees/w/modules/s/hooks/x", ".git/worktrees/w/modules/a/b/config"),
        *(".git/modules/a/config", ".git/modules/a/b/hooks/x", ".git/worktrees/w/gitdir"),
        *(".envrc", "deep/er/.envrc", ".vscode/tasks.json", ".idea/x/y", ".config/git/config"),
        *(".git", "module/.git"),  # a file that leads elsewhere
        *("mine.code-workspace", "a/B.Code-Workspace", "mise.ci.local.toml", ".config/mise.x.toml"),
        *("mise/config.production.toml", "mise.local.toml"),
    ],
)
def test_a_file_that_programs_run_is_one(path: str) -> None:
    assert Triggers().has(names(path))


@each(
    "path",
    [
        *(".git/index", ".git/objects/ab/cd", ".git/refs/heads/config", ".git/HEAD"),
        *(".git/logs/refs/heads/hooks/x", "hooks/pre-commit", "config", ".vscode/notes", "git"),
        *(".git/modules/a/index", ".github/workflows/ci.yml", "src/main.c", ".gitignore"),
        *("a.code-workspace.bak", "mise.toml.lock", "mise", "promise.x.toml", "config.ci.toml"),
    ],
)
def test_usual_files_of_git_and_people_are_no_triggers(path: str) -> None:
    assert not Triggers().has(names(path))


@each(
    ("pattern", "path", "fits"),
    [
        ("a*c", "ac", True),
        ("a*c", "abbc", True),
        ("a*a", "a", False),
        ("a*c/x", "d/abc/x/y", True),
        ("x/a*/y", "x/ab/y", True),
        ("x/a*/y", "x/ba/y", False),
        ("x/**/a*.b", "x/1/2/ac.b", True),
        ("*.b", "a/.b", True),
        ("*", "anything", True),
    ],
)
def test_a_star_is_any_characters_of_a_name(pattern: str, path: str, fits: bool) -> None:
    assert Triggers((pattern,)).has(names(path)) is fits


def test_a_directory_on_the_way_to_a_name_with_a_star_leads_there() -> None:
    triggers = Triggers(("x/a*/y",))
    assert triggers.leads(names("x")) and triggers.leads(names("x/ab"))
    assert not triggers.leads(names("x/b"))


def test_a_name_of_the_guest_with_a_star_is_no_pattern() -> None:
    assert not Triggers(("*.b/c",)).has(("*.b",))
    assert not Triggers(("a*/c",)).has(("*", "c"))
    assert Triggers(("a*/c",)).has(("a*", "c"))


def test_the_root_is_no_trigger() -> None:
    assert not Triggers().has(())
    assert not Triggers().leads(())


@given(st.lists(st.sampled_from(["a", ".git", "modules", "hooks", "**", "config"]), max_size=12))
def test_names_of_the_guest_are_no_patterns(found: list[str]) -> None:
    """And looking takes no time that grows with them as powers do."""
    triggers = Triggers()
    if ".git" not in found:
        assert not triggers.has(tuple(found))
    triggers.has((*found, *(".git", "modules") * 200))


# A share in which they are protected


@pytest.fixture
def store(make_store: StoreMaker, share: Path) -> Store:
    """One with a repository."""
    (share / ".git" / "hooks").mkdir(parents=True)
    (share / ".git" / "objects").mkdir()
    (share / ".git" / "config").write_text("[core]\n")
    (share / ".git" / "index").write_text("index")
    (share / "evil").mkdir()
    (share / "evil" / "tasks.json").write_text("run it")
    (share / ".vscode").mkdir()
    os.symlink("evil", share / "link")
    return make_store(protected=KNOWN)


def test_git_can_do_its_work(store: Store, share: Path) -> None:
    for path in (".git/index.lock", ".git/objects/ab", ".git/COMMIT_EDITMSG", "src"):
        store.open(names(path), MAKE)[0].close()
    store.rename(names(".git/index.lock"), names(".git/index"), replace=True)
    store.open(names(".git/refs"), MAKE_DIRECTORY)[0].close()
    store.open(names(".git/index"), REWRITE)[0].close()
    store.open(names(".git/config"), OpenOptions(read=True))[0].close()
    directory, _ = store.open(names(".git"), OpenOptions())
    directory.set_mode(0o700)
    directory.close()
    store.remove(names(".git/COMMIT_EDITMSG"), directory=False)
    assert (share / ".git" / "config").read_text() == "[core]\n"


def test_no_way_leads_to_a_command(store: Store, share: Path) -> None:
    """By writing, by a new name, by a name on the way there, by a link, by taking away."""
    before = sorted(os.walk(share))
    attempts: list[Callable[[], object]] = [
        lambda: store.open(names(".git/hooks/pre-commit"), MAKE),
        lambda: store.open(names(".git/config"), WRITE),
        lambda: store.open(names(".git/config"), REWRITE),
        lambda: store.open(names("evil/.envrc"), MAKE),
        lambda: store.rename(names("evil/tasks.json"), names(".vscode/tasks.json"), replace=True),
        lambda: store.rename(names("evil"), names(".vscode"), replace=True),
        lambda: store.rename(names("evil"), names(".direnv"), replace=False),
        lambda: store.rename(names(".git"), names("git"), replace=False),
        lambda: store.rename(names(".git/hooks"), names("x"), replace=False),
        lambda: store.rename(names("link"), names("evil/.vscode"), replace=False),
        lambda: store.link(names("link"), names("evil/.vscode"), replace=False),
        lambda: store.link(names(".git/config"), names("x"), replace=False),
        lambda: store.link(names("evil/tasks.json"), names(".vscode/tasks.json"), replace=False),
        lambda: store.symlink("../evil", names("evil/.git")),
        lambda: store.symlink("evil", names("evil/.idea")),
        lambda: store.make_node(names(".git/hooks/x"), FileKind.FIFO, 0o600),
        lambda: store.remove(names(".git/config"), directory=False),
        lambda: store.remove(names(".git/hooks"), directory=True),
        lambda: store.open(names("evil/.git"), MAKE),
        lambda: store.open(names(".git/config"), OpenOptions())[0].set_mode(0o777),
    ]
    for attempt in attempts:
        with Raises(Reason.READ_ONLY, Reason.EXISTS):
            attempt()
    assert sorted(os.walk(share)) == before
    assert (share / ".git" / "config").read_text() == "[core]\n"


def test_what_is_on_the_way_can_be_made_and_removed(store: Store, share: Path) -> None:
    store.open(names("evil/.vscode"), MAKE_DIRECTORY)[0].close()
    store.open(names("evil/.vscode/notes"), MAKE)[0].close()
    store.remove(names("evil/.vscode/notes"), directory=False)
    store.remove(names("evil/.vscode"), directory=True)
    store.rename(names("evil"), names("good"), replace=False)
    store.rename(names("good"), names("deeper"), replace=False)


def test_a_share_that_is_a_part_of_such_a_place_is_protected_and_told(
    make_store: StoreMaker, share: Path
) -> None:
    told: list[str] = []
    (share / "hooks").mkdir()
    store = make_store(tell=lambda found: told.append("/".join(found)), within=("src", ".git"))
    store.open(names("hooks/pre-commit"), MAKE)[0].close()
    store.open(names("index"), MAKE)[0].close()
    assert told == ["hooks/pre-commit"]
    store = make_store(protected=KNOWN, within=("home", ".config"))
    with Raises(Reason.READ_ONLY):
        store.open(names("fish"), MAKE_DIRECTORY)
    store.open(names("other"), MAKE_DIRECTORY)[0].close()


# What is told


def test_what_a_guest_writes_there_is_told_and_nothing_else(
    make_store: StoreMaker, share: Path
) -> None:
    told: list[str] = []
    store = make_store(tell=lambda found: told.append("/".join(found)))
    for path in (".git", ".git/hooks", "evil"):
        store.open(names(path), MAKE_DIRECTORY)[0].close()
    for path in ("src", ".git/index", ".git/hooks/pre-commit", "evil/tasks.json", ".git/config"):
        store.open(names(path), MAKE)[0].close()
    assert told == [".git/hooks/pre-commit", ".git/config"]
    told.clear()
    # What each new repository has is told once it can be run.
    for path in (".git/hooks/update.sample", ".git/config.lock"):
        store.open(names(path), MAKE)[0].close()
    store.rename(names(".git/config.lock"), names(".git/config"), replace=True)
    store.rename(names(".git/hooks/update.sample"), names(".git/hooks/update"), replace=False)
    assert told == [".git/config", ".git/hooks/update"]
    told.clear()
    store.open(names(".git/config"), OpenOptions(read=True))[0].close()
    store.open(names(".git/config"), WRITE)[0].close()
    store.rename(names("src"), names(".envrc"), replace=False)
    store.link(names("evil/tasks.json"), names(".zshrc"), replace=False)
    store.rename(names("evil"), names(".vscode"), replace=False)
    store.symlink("/tmp", names(".idea"))
    assert told == [".git/config", ".envrc", ".zshrc", ".vscode", ".idea"]


def test_of_a_read_only_share_nothing_is_told(make_store: StoreMaker, share: Path) -> None:
    (share / ".envrc").write_text("mine")
    told: list[Names] = []
    store = make_store(read_only=True, tell=told.append)
    with Raises(Reason.READ_ONLY):
        store.open(names(".envrc"), WRITE)
    assert told == []
