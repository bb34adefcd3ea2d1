"""Run the tests as a plain user: one without root's rights, subordinate ids or an account.

Somebody who is not root is one already, and `make test` is that run. Root gets a copy of this
checkout, its Python environment, images and QEMU in a directory of that user's, which is removed
afterwards. Arguments are pytest's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from quicksand.base.paths import paths

ROOT = Path(__file__).resolve().parents[1]
USER_ID = 47110
"""Of nobody: accounts of people begin at 1000, dynamic ones of systemd at 61184 (UIDS-GIDS.md)."""

NOT_COPIED = shutil.ignore_patterns(".git", "target", ".*_cache", ".hypothesis", "__pycache__")
PREPARED = ("images", "qemu", "tools")
"""What `make setup` and `make tools` have put into the data directory."""

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
        _move_environment(checkout)
        for place, _, files in os.walk(home):
            for path in (place, *(os.path.join(place, name) for name in files)):  # noqa: PTH118
                os.chown(path, USER_ID, USER_ID, follow_symlinks=False)
        python = _python(home)
        words = sys.argv[1:] or [*TESTS]
        return _run(home, [python, "-m", "pytest", "-p", "no:cacheprovider", *words])


def _move_environment(checkout: Path) -> None:
    """Let the copied Python environment name its new place."""
    environment = checkout / ".venv"
    packages = next((environment / "lib").glob("python*")) / "site-packages"
    named = [*(environment / "bin").iterdir(), *packages.glob("*.pth")]
    for path in (*named, environment / "pyvenv.cfg"):
        if path.is_symlink():
            continue
        data = path.read_bytes()
        if os.fsencode(ROOT) in data and b"\0" not in data:
            path.write_bytes(data.replace(os.fsencode(ROOT), os.fsencode(checkout)))


def _python(home: Path) -> str:
    """The Python of the copied environment, which may have been made from one that only root can
    run; then from the system's of the same version. Raises SystemExit if there is none."""
    python = home / "checkout" / ".venv" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for base in (None, Path("/usr/bin") / version, Path("/usr/local/bin") / version):
        if base is not None and base.exists():
            python.unlink()
            python.symlink_to(base)
            for other in ("python3", version):
                (python.parent / other).unlink(missing_ok=True)
                (python.parent / other).symlink_to("python")
        with contextlib.suppress(PermissionError):  # it is where only root can look
            if _run(home, [str(python), "-c", "import quicksand, pytest, ssl"], quiet=True) == 0:
                return str(python)
    raise SystemExit(f"error: there is no {version} that other users may run")


def _run(home: Path, argv: list[str], *, quiet: bool = False) -> int:
    env = {
        "HOME": str(home),
        "USER": "plain",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "PATH": f"{home}/checkout/.venv/bin:/usr/local/bin:/usr/bin:/bin",
        "QUICKSAND_DATA_DIR": str(home / "data"),
        "QUICKSAND_CACHE_DIR": str(home / "cache"),
        "QUICKSAND_STATE_DIR": str(home / "state"),
    }
    done = subprocess.run(
        argv,
        user=USER_ID,
        group=USER_ID,
        extra_groups=[],
        env=env,
        cwd=home / "checkout",
        stderr=subprocess.DEVNULL if quiet else None,
        check=False,
    )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
