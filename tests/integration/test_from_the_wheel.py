"""The wheel alone, in an environment of its own and with an empty home, leads to running sandboxes.
Takes minutes and packages from the index."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from quicksand.base.paths import Paths

from tests.conftest import our_processes, wait_for

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.vm, pytest.mark.soak, pytest.mark.timeout(1200)]


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who has only the wheel."""

    home: Path
    runtime: Path
    """The directory of sockets, whose paths must be short."""

    @property
    def programs(self) -> Path:
        return self.home / "venv" / "bin"

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, without a terminal."""
        kept = ("PIP_", "UV_", "HTTP", "http", "SSL_")
        env = {name: value for name, value in os.environ.items() if name.startswith(kept)}
        env["QUICKSAND_RUNTIME_DIR"] = str(self.runtime)
        # Nothing is to go on in the background when the test ends.
        env |= {"QUICKSAND_TEMPLATES": "off", "QUICKSAND_SPARES": "off"}
        env |= {"HOME": str(self.home), "PATH": f"{self.programs}:/usr/sbin:/usr/bin:/sbin:/bin"}
        return subprocess.run(
            [str(self.programs / words[0]), *words[1:]],
            env=env,
            cwd=cwd or self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def quicksand(self, *words: str, cwd: Path | None = None) -> str:
        """Run a command of ours that succeeds; return what it prints."""
        done = self.run("quicksand-tui", *words, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def user(tmp_path: Path, places: Paths) -> Iterator[User]:
    made = tmp_path / "made"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = made.iterdir()
    found = User(tmp_path / "home", places.runtime)
    found.home.mkdir()
    venv.create(found.home / "venv", with_pip=True)
    done = found.run("pip", "install", "--quiet", str(wheel))
    assert done.returncode == 0, done.stderr
    yield found
    # `run` leaves to the keeper what that can remove alone.
    wait_for(lambda: not our_processes(str(tmp_path)), what="its processes to end")


def test_a_published_image_is_installed_with_qemu_and_runs(user: User) -> None:
    missing = user.run("quicksand-tui", "run", "alpine", "--", "true")
    assert "`quicksand-tui setup --image alpine` gets both" in missing.stderr
    assert user.quicksand("install", "alpine").startswith("alpine ")
    said = user.quicksand("run", "alpine", "--", "cat", "/etc/os-release")
    assert "ID=alpine" in said.splitlines()


def test_packages_of_ones_own_are_built_installed_with_pip_and_run(user: User) -> None:
    user.quicksand("setup", "--no-image")
    base = Path(user.quicksand("images", "new", "base", "mine").strip())
    (base / "mine.toml").write_text(
        (base / "mine.toml").read_text().replace('"ca-certificates", ', "")
    )
    done = user.run("pip", "wheel", "--no-deps", "-w", "dist", ".", cwd=base)
    assert done.returncode == 0, done.stderr
    (wheel,) = (base / "dist").iterdir()
    user.quicksand("images", "rm", "mine")
    done = user.run("pip", "install", "--quiet", "--no-deps", str(wheel))
    assert done.returncode == 0, done.stderr
    assert "package" in user.quicksand("images")
    assert user.quicksand("run", "mine", "--", "cat", "/etc/debian_version").startswith("13")
    user.run("pip", "uninstall", "-q", "-y", "quicksand-mine")

    user.quicksand("install", str(wheel))
    layer = Path(user.quicksand("images", "new", "layer", "upper", "--on", "mine").strip())
    done = user.run("pip", "wheel", "--no-deps", "-w", "dist", ".", cwd=layer)
    assert done.returncode == 0, done.stderr
    (upper,) = (layer / "dist").iterdir()
    user.quicksand("install", str(upper))
    said = user.quicksand("run", "upper", "--", "cat", "/etc/motd")
    assert said == "This is upper, a layer on mine.\n"
