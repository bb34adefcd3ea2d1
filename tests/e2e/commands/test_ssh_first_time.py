"""The line that somebody types who has just got the program: nothing is in the home, and no option
says where anything is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from quicksand.base.paths import Paths

from quicksand_tui.cli.ssh.ssh_config import sockets_dir
from tests.conftest import wait_for
from tests.e2e.commands.conftest import succeed

pytestmark = pytest.mark.vm

ROOT = Path(__file__).parents[3]

AT_HOME = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)))
"""ssh takes the home from the user database, so there must be another one: in a mount namespace,
and for plain users in a user namespace, in which they are root."""

ENTER = 'mount --bind "$0" /etc/passwd; cd "$1"; exec sh -ec "$2"'

LINE = """
quicksand-tui run debian --name w --detach && quicksand-tui ssh-config --install &&
ssh w.qs uname -a && scp README.md w.qs: && rsync -a docs/ w.qs:docs/ &&
ssh w.qs 'git init -q repo' && git clone w.qs:repo
cat repo/.git/config
ssh w.qs 'cat README.md docs/internals/layout.md'
ssh -O exit w.qs
"""


def can_enter() -> bool:
    return subprocess.run([*AT_HOME, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_enter(), reason="this host gives no mount namespace")
def test_the_usual_programs_reach_a_new_sandbox_by_its_name(places: Paths, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "passwd").write_text(f"root:x:0:0:root:{home}:/bin/sh\n")
    for name in ("README.md", "docs"):
        (home / name).symlink_to(ROOT / name)
    env = {**os.environ, "HOME": str(home), "GIT_CONFIG_GLOBAL": os.devnull}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    try:
        done = subprocess.run(
            [*AT_HOME, "sh", "-ec", ENTER, tmp_path / "passwd", home, LINE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            env=env,
            check=False,
        )
        assert done.returncode == 0, done
        assert "Linux w " in done.stdout
        assert "url = w.qs:repo" in done.stdout
        texts = [(ROOT / name).read_text() for name in ("README.md", "docs/internals/layout.md")]
        assert done.stdout.endswith("".join(texts))
        assert [file.name for file in (home / ".ssh").iterdir()] == ["config"]
    finally:
        succeed("rm", "-f", "w")
        sockets = sockets_dir(places)
        assert sockets is not None
        wait_for(lambda: not list(sockets.glob("*")), what="the master to end")
        sockets.rmdir()
