"""Run the tests as a plain user: one without root's rights or subordinate ids.

For users other than root, `make test` is that run. For root this checkout, images and QEMU are
copied to a directory of that user's, which is removed afterwards. The Python environment is made
there as `make setup` makes it: from the system's own Python, which may be the oldest supported one.
Arguments are pytest's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from quicksand.base.paths import paths

ROOT = Path(__file__).resolve().parents[1]
USER_ID = 47110
"""Of nobody: accounts of people begin at 1000, dynamic ones of systemd at 61184 (UIDS-GIDS.md)."""

NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "target", ".*_cache", ".hypothesis", "__pycache__"
)
PREPARED = ("images", "qemu", "tools")
"""The subdirectories of the data directory that `make setup` and `make tools` have filled."""

WITH_ACCOUNT = """
for name in passwd group; do mount --bind "$0/$name" "/etc/$name"; done && exec "$@"
"""
"""Lets only this program and what it starts see the account: the host's own lists stay."""

KEPT = re.compile(r"PIP_.*|.*_CA_BUNDLE|SSL_CERT_.*|(?i:https?_proxy|no_proxy)")
"""Variables by which pip finds its index."""

TESTS = ("-n", "2", "--dist", "loadfile", "tests")


def main() -> int:
    if os.geteuid() != 0:
        sys.stdout.write("this is a plain user already: `make test` is that run\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="qplain-") as directory:
        home = Path(directory)
        checkout = home / "checkout"
        shutil.copytree(ROOT, checkout, symlinks=True, ignore=NOT_COPIED)
        for name in PREPARED:
            if (paths().data / name).is_dir():
                shutil.copytree(paths().data / name, home / "data" / name, symlinks=True)
        for place, _, files in os.walk(home):
            for path in (place, *(os.path.join(place, name) for name in files)):  # noqa: PTH118
                os.chown(path, USER_ID, USER_ID, follow_symlinks=False)
        _write_account(home)
        if code := _run(home, ["sh", "scripts/bootstrap.sh"]):
            return code
        python = checkout / ".venv" / "bin" / "python"
        _run(home, [str(python), "--version"])
        words = sys.argv[1:] or [*TESTS]
        return _run(home, [str(python), "-m", "pytest", "-p", "no:cacheprovider", *words])


def _run(home: Path, argv: list[str]) -> int:
    env = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)} | {
        "HOME": str(home),
        "USER": "plain",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "PATH": f"{home}/checkout/.venv/bin:/usr/local/bin:/usr/bin:/bin",
        "QUICKSAND_DATA_DIR": str(home / "data"),
        "QUICKSAND_CACHE_DIR": str(home / "cache"),
        "QUICKSAND_STATE_DIR": str(home / "state"),
    }
    identity = ("--reuid", f"{USER_ID}", "--regid", f"{USER_ID}", "--clear-groups")
    seen_alone = ("unshare", "--mount", "--propagation", "private", "sh", "-c", WITH_ACCOUNT)
    done = subprocess.run(
        [*seen_alone, str(home), "setpriv", *identity, *argv],
        env=env,
        cwd=home / "checkout",
        check=False,
    )
    return done.returncode


def _write_account(home: Path) -> None:
    """Writes the lists of accounts with one of the user: ssh refuses who has none."""
    for name, rest in (("passwd", f":{USER_ID}::{home}:/bin/sh"), ("group", ":")):
        listed = Path("/etc", name).read_text()
        (home / name).write_text(f"{listed}plain:x:{USER_ID}{rest}\n")


if __name__ == "__main__":
    sys.exit(main())
