"""What a guest writes in a mount that programs of this host run by themselves is told, and refused
where that is wanted; git in the guest works all the same."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quicksand.base.paths import Paths
from quicksand.mounts.known_mounts import known_mounts
from quicksand.records.registry import Registry

from tests.integration.mounts.shared.conftest import ROOT, WORK, Both
from tests.unit.cli.run_cli import quicksand

pytestmark = pytest.mark.vm

GIT = "git -c user.name=guest -c user.email=guest@example.org"


@pytest.fixture
async def repository(both: Both, tmp_path: Path) -> AsyncIterator[Path]:
    """A repository of the host, mounted with protection beside the directory under test."""
    directory = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(directory)], check=True)
    (directory / "file").write_text("first\n")
    at = f"{ROOT}{WORK}/{both.name}/repository"
    await both.vm.mount(directory, at, protect=True)
    yield directory
    await both.vm.unmount(at, force=True)


async def test_git_in_the_guest_works_and_its_hooks_and_config_stay_the_hosts(
    both: Both, repository: Path
) -> None:
    before = (repository / ".git" / "config").read_bytes()
    hooks = sorted(path.name for path in (repository / ".git" / "hooks").iterdir())
    await both.run(f"cd repository && {GIT} add . && {GIT} commit -qm first")
    await both.run(f"cd repository && {GIT} checkout -qb other && echo second >>file")
    await both.run(f"cd repository && {GIT} commit -qam second && {GIT} checkout -q - ")
    await both.run(f"cd repository && {GIT} merge -q other && {GIT} gc -q && {GIT} status")
    log = subprocess.run(
        ["git", "-C", str(repository), "log", "--format=%s"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert log.stdout.split() == ["second", "first"]
    refused = [
        "echo evil >.git/hooks/pre-commit",
        "echo evil >>.git/config",
        f"{GIT} config core.fsmonitor /tmp/evil",
        "mv .git/hooks x",
        "mv .git x",
        "ln .git/config x",
        "mkdir e && echo evil >e/config && mv e .git/hooks",
        "rm -rf .git/hooks",
        "echo evil >.envrc",
        "ln -s /tmp .vscode",
        f"{GIT} init -q sub",
        f"{GIT} rebase -f @~1",
    ]
    for command in refused:
        said = await both.run(f"cd repository && if {command}; then echo done; fi 2>&1")
        assert not said.endswith("done"), command
    assert (repository / ".git" / "config").read_bytes() == before
    assert sorted(path.name for path in (repository / ".git" / "hooks").iterdir()) == hooks
    assert not {".envrc", ".vscode", "x"} & {path.name for path in repository.iterdir()}
    assert not (repository / "sub" / ".git" / "config").exists()


@pytest.mark.soak
async def test_usual_work_with_branches_goes_on_with_two_settings(
    both: Both, repository: Path
) -> None:
    """The guide names them. Without them git writes commands, or its configuration."""
    host = ["git", "-C", str(repository), "-c", "user.name=h", "-c", "user.email=h@example.org"]
    for words in (
        ["add", "."],
        ["commit", "-qm", "first"],
        ["update-ref", "refs/remotes/o/far", "@"],
    ):
        subprocess.run([*host, *words], check=True)
    subprocess.run([*host, "remote", "add", "o", "."], check=True)
    git = f"{GIT} -c rebase.backend=apply -c branch.autoSetupMerge=false"
    for command in (
        f"{git} checkout -q far && echo far >>file && {git} commit -qam far",
        f"{git} checkout -q - && echo here >other && {git} add other && {git} commit -qm here",
        f"echo more >>other && {git} stash -q && {git} rebase -q far && {git} stash pop -q",
        f"{git} commit -q --amend -a --no-edit && {git} revert --no-edit @ && {git} reset -q @~1",
        f"{git} tag there && {git} checkout -q far && {git} cherry-pick there",
        f"{git} pull -q --rebase . there",
    ):
        await both.run(f"cd repository && {command}")
    log = subprocess.run([*host, "log", "--format=%s"], check=True, capture_output=True, text=True)
    assert log.stdout.split() == ["here", "far", "first"]
    result = await both.vm.execute(
        f"chroot {ROOT} /bin/sh -c 'cd {WORK}/{both.name}/repository && git rebase -f @~1'"
    )
    assert result.exit_code != 0
    assert "rebase-merge" in result.stderr


async def test_what_was_written_is_told_whoever_asks(both: Both, places: Paths) -> None:
    await both.run("mkdir -p a/.git/hooks && echo x >a/.git/hooks/post-checkout && echo x >a/b")
    (mount,) = [one for one in both.vm.active_mounts if one.guest == f"{ROOT}{WORK}"]
    path = f"{both.name}/a/.git/hooks/post-checkout"
    assert path in [written.path for written in mount.told]
    assert not any(written.path.endswith("/b") for written in mount.told)
    registry = Registry(places)
    known = known_mounts(registry, registry.find("mounted"))
    assert any(path in one.told for one in known)
    said = quicksand("mounts", "mounted")
    assert f"mounted wrote {both.host.parent}/{path} at " in said.stderr.decode()
    assert path in quicksand("mounts", "mounted", "--json").stdout.decode()
