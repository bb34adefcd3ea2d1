"""What is written in a mount is what is there: the same tree as the guest sees it at once, as it
sees it when it believes nothing any more of what it has kept, as another guest sees it, and on the
host."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quicksand import Sandbox

from tests.integration.mounts.shared.conftest import Both, make_root, mounts_of
from tests.integration.mounts.shared.in_guest import trees
from tests.integration.mounts.shared.test_programs import git, make_tree

pytestmark = pytest.mark.vm

Tree = dict[str, dict[str, Any]]
KEPT_S = 1.2
"""Seconds after which the guest asks again (`actimeo=1`)."""
PYTHON = [sys._base_executable, "-I"]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def other(shared: Path) -> Iterator[str]:
    """Another guest with the same directory."""

    async def start() -> None:
        vm = Sandbox(image="debian", name="other", ephemeral=True, mounts=mounts_of(shared))
        await vm.start()
        await make_root(vm)
        vm.detach()
        vm.close()

    async def stop() -> None:
        await Sandbox.attach("other").kill()

    asyncio.run(start())
    yield "other"
    asyncio.run(stop())


@pytest.fixture
async def elsewhere(both: Both, other: str) -> AsyncIterator[Both]:
    """The same directory as `both`, in the other guest."""
    vm = Sandbox.attach(other)
    yield replace(both, vm=vm)
    vm.close()


async def see(where: Both, directory: str = ".") -> Tree:
    """A directory as a guest sees it."""
    lines = (await where.python("trees", "tell", directory, within=120)).splitlines()
    return {record["name"]: record for record in map(json.loads, lines)}


def lies(directory: Path) -> Tree:
    """A directory as it is on the host."""
    return {record["name"]: record for record in trees.tell(str(directory))}


def differences(one: Tree, two: Tree, *ignored: str, kept: bool = False) -> list[str]:
    """Whatever is not the same, as names and values. Times are told in steps of 100 ns; those of
    directories may be old in a guest that has `kept` the directory above."""
    found = [f"{name!r} is on one side only" for name in sorted(one.keys() ^ two.keys())]
    for name in sorted(one.keys() & two.keys()):
        for key in (one[name].keys() | two[name].keys()) - set(ignored):
            here, there = one[name].get(key), two[name].get(key)
            if key == "time" and here is not None and there is not None:
                here, there = here // 100, there // 100
            if here != there and not (kept and key == "time" and one[name]["kind"] == "d"):
                found.append(f"{name!r}: {key} {here!r} and {there!r}")
    return found


async def compare_all(both: Both, elsewhere: Both | None, *ignored: str) -> Tree:
    """The host's view, which all others have to be."""
    at_once = await see(both)
    host = lies(both.host)
    assert differences(at_once, host, "time", *ignored) == [], "at once"
    await both.run(f"sleep {KEPT_S}")
    assert differences(await see(both), host, *ignored, kept=True) == [], "later"
    if elsewhere is None:
        return host
    there = await see(elsewhere)
    assert differences(there, host, *ignored, kept=True) == [], "in another guest"
    return host


COPIES = {
    "tar": "tar -C /tmp/source -cf - --xattrs . | tar -xpf - --xattrs --xattrs-include='user.*'",
    "cp -a": "cp -a /tmp/source/. .",
}


@pytest.mark.soak
@pytest.mark.parametrize("how", ["tar", "cp -a"])
async def test_a_copied_tree_is_the_same_everywhere(both: Both, elsewhere: Both, how: str) -> None:
    if not await _is_there(both, "/tmp/source"):
        await both.python("trees", "make", "/tmp/source")
    await both.run(COPIES[how], within=120)
    source = await see(both, "/tmp/source")
    if how == "tar":
        del source["socket"]  # which it leaves out
    host = await compare_all(both, elsewhere)
    for name in [name for name, record in host.items() if record["kind"] == "-"]:
        if "content" not in host[name]:
            assert os.geteuid() != 0, "root reads every file"
            del source[name]["content"]
    assert differences(source, host) == []
    assert len(host) > 80


async def _is_there(both: Both, path: str) -> bool:
    return await both.run(f"test -e {path} && echo yes || true") == "yes"


async def test_a_tree_of_the_hosts_is_the_same_in_the_guest(both: Both) -> None:
    trees_script = Path(trees.__file__)
    subprocess.run([*PYTHON, trees_script, "make", both.host / "tree"], check=True)
    await compare_all(both, None)


@pytest.mark.soak
async def test_a_repository_is_the_same_everywhere(
    both: Both, elsewhere: Both, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    make_tree(source, files=25)
    (source / "absolute").symlink_to("/usr/bin/env")
    (source / "odd").symlink_to("/a:b *?")
    git(source, "init", "-q", "-b", "main")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "first")
    (source / "absolute").unlink()
    (source / "absolute").symlink_to("//elsewhere")
    (source / "d1" / "e1").rename(source / "d1" / "moved") if (source / "d1/e1").exists() else None
    git(source, "add", "-A")
    git(source, "commit", "-qm", "second")
    git(source, "bundle", "create", str(both.host / "it.bundle"), "main")
    await both.run("git clone -q -b main it.bundle clone", within=120)
    clone = both.host / "clone"
    for commit in ("main~1", "main"):
        await both.run(f"cd clone && git checkout -q {commit}")
        listed = git(source, "ls-tree", "-r", commit)
        assert git(clone, "ls-tree", "-r", "HEAD") == listed
        assert git(clone, "status", "--porcelain") == ""
        await compare_all(both, elsewhere)
    commits = "git -c user.name=G -c user.email=g@g commit -qam"
    # The guest has files open for adding, and maps them; what the host edits is no program.
    await both.run(
        "cd clone && ln -s /usr/bin/python3 new && for f in d2/*/*; do echo x >> $f; done"
    )
    for file in clone.glob("d3/*/*"):
        file.write_text("of the host\n")
    await both.run(f"cd clone && tail -qn1 d3/*/* >/dev/null && git add -A && {commits} third")
    modes = {line.split()[0] for line in git(clone, "ls-files", "-s").splitlines()}
    assert modes == {"100644", "100755", "120000"}
    changed = git(clone, "diff", "--summary", "main~1")
    assert "mode change" not in changed
    assert await both.run("cd clone && git status --porcelain") == ""
    assert git(clone, "status", "--porcelain") == ""
    await compare_all(both, elsewhere)


@pytest.mark.soak
@pytest.mark.parametrize("how", ["--copies", "--symlinks"])
async def test_a_virtual_environment_is_the_same_everywhere(
    both: Both, elsewhere: Both, how: str
) -> None:
    python = shlex.join(PYTHON)
    await both.run(f"{python} -m venv --without-pip {how} v", within=300)
    assert await both.run("v/bin/python -c 'print(6 * 7)'") == "42"
    host = await compare_all(both, elsewhere)
    if how == "--symlinks":
        assert host["v/bin/python3"]["target"].startswith(("/", "python"))
        assert {one["target"] for one in host.values() if "target" in one} >= {PYTHON[0]}


BUILD = r"""
import os
from pathlib import Path
# What npm, pip and cargo leave: links to programs, many small files, hard links, renames over.
for n in range(30):
    package = Path(f"node_modules/p{n}/lib")
    package.mkdir(parents=True)
    (package / "index.js").write_text(f"{n}\n")
    (package.parent / "package.json").write_text("{}")
    (package.parent / "cli.js").write_text("#!/usr/bin/env node\n")
    os.chmod(package.parent / "cli.js", 0o755)
    Path("node_modules/.bin").mkdir(exist_ok=True)
    os.symlink(f"../p{n}/cli.js", f"node_modules/.bin/p{n}")
deps = Path("target/debug/deps")
deps.mkdir(parents=True)
for n in range(10):
    (deps / f"unit-{n}").write_bytes(os.urandom(20_000))
    os.chmod(deps / f"unit-{n}", 0o755)
    os.link(deps / f"unit-{n}", f"target/debug/unit-{n}")
    (deps / f"unit-{n}").read_bytes()
site = Path("lib/site-packages/x-1.0.dist-info")
site.mkdir(parents=True)
for n in range(30):
    temporary = site / f".tmp{n}"
    with open(temporary, "w") as file:
        file.write("text\n" * n)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), 0o640)
    os.replace(temporary, site / f"module{n % 10}.py")
with open(site / "RECORD", "a") as file:
    for n in range(50):
        file.write(f"{n}\n")
        file.flush()
        file.seek(0, 2)
with open(site / "RECORD", "r+b") as file:
    file.seek(0, 2)
    file.truncate(60)
    file.write(b"end")
os.chmod(site / "RECORD", 0o600)
with open(site / "RECORD", "a") as file:
    assert file.tell() == 143
"""


@pytest.mark.soak
async def test_what_tools_leave_is_the_same_everywhere(both: Both, elsewhere: Both) -> None:
    await both.run(f"{shlex.join(PYTHON)} -S -c {shlex.quote(BUILD)}")
    host = await compare_all(both, elsewhere, "links")
    assert host["lib/site-packages/x-1.0.dist-info/RECORD"]["mode"] == "600"
    assert len([one for one in host.values() if one.get("links") == 2]) == 20


async def test_a_file_keeps_its_mode_whatever_is_asked_of_it(both: Both) -> None:
    """A seek to the end and a mapping ask for a file without its mode (Linux 6.12)."""
    mode = "import os, mmap; print(f'{os.stat(\"f\").st_mode:o}')"
    programs = {
        "tail": "tail -n1 f > /dev/null",
        "append": f'{shlex.join(PYTHON)} -S -c \'open("f", "a").write("x")\'',
        "map": f'{shlex.join(PYTHON)} -S -c \'import mmap; f = open("f", "r+b");'
        " mmap.mmap(f.fileno(), 0).close(); f.close()'",
    }
    await both.run("(umask 077; seq 10 > f)")
    for name, program in programs.items():
        seen = await both.run(
            f"{program}; {shlex.join(PYTHON)} -S -c {shlex.quote(mode)}; stat -c %a f"
        )
        assert seen.split() == ["100600", "600"], name
