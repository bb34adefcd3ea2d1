"""Minimal Debian systems in directories, with a plain user in each: root only makes them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from quicksand_images.recipe import load_recipe
from quicksand_images.sources import KEYRINGS, find_mirrors

USER = 4711
HOME = "/home/plain"
ENTER = """
set -eu
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
exec chroot --userspec="$USER_ID:$USER_ID" --groups= "$0" env -i "$@"
"""


class Machine:
    """A root directory, and what its plain user runs in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, script: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """A shell script without a terminal; all that it started ends with it."""
        environment = [f"HOME={HOME}", "PATH=/usr/bin:/bin", "LANG=C.UTF-8", "USER=plain"]
        # How this host reaches a registry.
        known = ("PIP_INDEX_URL", "PIP_CERT", "PIP_DEFAULT_TIMEOUT", "http_proxy", "https_proxy")
        environment += [f"{name}={os.environ[name]}" for name in known if name in os.environ]
        namespaces = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
        argv = [*namespaces, "sh", "-c", ENTER, str(self.root), *environment, "sh", "-ec", script]
        return subprocess.run(
            argv,
            env={**os.environ, "USER_ID": str(USER)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def make_machine(place: Path, suite: str, packages: Sequence[str]) -> Machine:
    """Make one in the directory ``place`` of a test, with the packages of a minimal system and
    these."""
    root = place / "root"
    recipe = load_recipe("debian")
    mirrors = find_mirrors(recipe.system)
    keyring = KEYRINGS / f"{recipe.system.keyring}.gpg"
    sources = [
        f"deb [signed-by={keyring}] {mirrors.main} {suite} main",
        f"deb [signed-by={keyring}] {mirrors.security} {suite}-security main",
    ]
    argv = ["mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    argv += ['--aptopt=APT::Install-Recommends "false"', suite, str(root), *sources]
    # pytest's directories are its user's alone.
    for parent in (place, *list(place.parents)[:2]):
        parent.chmod(0o755)
    subprocess.run(argv, check=True, capture_output=True)
    for path in (Path("/etc/resolv.conf"), Path("/etc/ssl/certs/ca-certificates.crt")):
        shutil.copy(path, root / path.relative_to("/"))
    with (root / "etc" / "passwd").open("a") as file:
        file.write(f"plain:x:{USER}:{USER}::{HOME}:/bin/sh\n")
    home = root / HOME.lstrip("/")
    home.mkdir()
    os.chown(home, USER, USER)
    return Machine(root)
