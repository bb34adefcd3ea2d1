"""A private sshd on the loopback interface, as the user who runs the tests, and an `ssh` that knows
it. Where there is no sshd, another `ssh` starts the command by itself: all but ssh is the same."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import free_port, wait_for

BIN = Path(sys.executable).parent
DIRECTORIES = ("/usr/sbin", "/usr/local/sbin", "/sbin")
PRIVILEGES = Path("/run/sshd")
"""The directory that an sshd wants that was started by root."""
MADE = ".of-quicksand-tests"
"""In that directory, if tests have made it."""


def find_sshd() -> str | None:
    """The sshd of this host, which lies where the PATH of a user does not lead."""
    return shutil.which("sshd", path=os.pathsep.join((os.environ["PATH"], *DIRECTORIES)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FarHost:
    """A machine that can be reached: this one."""

    address: str
    bin: Path
    """The directory with the `ssh` that leads there, for PATH."""
    has_sshd: bool

    @property
    def port(self) -> int:
        """The port of its sshd."""
        return int(self.address.rpartition(":")[2])

    def environ(self) -> dict[str, str]:
        """The environment of a program that goes there."""
        return {**os.environ, "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}


def far_environ(**more: str) -> dict[str, str]:
    """What is set at the other end: it sees this test's places, under a PATH with our program."""
    places = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("QUICKSAND_") or name == "XDG_CONFIG_HOME"
    }
    return {"PATH": f"{BIN}{os.pathsep}{os.defpath}", **places, **more}


@contextlib.contextmanager
def without_sshd(root: Path, env: Mapping[str, str]) -> Iterator[FarHost]:
    """An `ssh` that runs the command here."""
    words = shlex.join(f"{key}={value}" for key, value in env.items())
    home = shlex.quote(os.environ.get("HOME", "/"))
    lines = f'for last; do :; done\nexec env -i HOME={home} {words} sh -c "$last"\n'
    _make_program(root / "bin" / "ssh", lines)
    yield FarHost(address="ssh://far", bin=root / "bin", has_sshd=False)


@contextlib.contextmanager
def with_sshd(root: Path, env: Mapping[str, str], *settings: str) -> Iterator[FarHost]:
    """A private sshd with these further ``settings``."""
    sshd = find_sshd()
    assert sshd is not None
    port = free_port()
    for name in ("host", "user"):
        key = root / f"{name}_key"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=60
        )
    (root / "authorized").write_text((root / "user_key.pub").read_text())
    host_key = (root / "host_key.pub").read_text()
    (root / "known").write_text(f"[localhost]:{port} {host_key}")
    config = root / "sshd_config"
    config.write_text("\n".join((*_sshd_config(root, port, env), *settings, "")))
    (root / "ssh_config").write_text(
        f"Host *\n IdentityFile {root}/user_key\n IdentitiesOnly yes\n"
        f" UserKnownHostsFile {root}/known\n StrictHostKeyChecking yes\n"
        f" HostKeyAlias [localhost]:{port}\n"  # also at the port of a relay
    )
    ssh = shutil.which("ssh")
    _make_program(root / "bin" / "ssh", f'exec {ssh} -F {root}/ssh_config "$@"\n')
    with _privileges(), (root / "sshd.log").open("wb") as log:
        server = subprocess.Popen([sshd, "-D", "-e", "-f", config], stderr=log)
        try:
            wait_for(lambda: _answers(port, server), what="sshd to answer")
            address = f"ssh://localhost:{port}"
            yield FarHost(address=address, bin=root / "bin", has_sshd=True)
        finally:
            server.terminate()
            server.wait(60)


def lock_key(far: FarHost, passphrase: str) -> None:
    """Give the user's key of a machine with an sshd a passphrase."""
    key = str(far.bin.parent / "user_key")
    words = ["ssh-keygen", "-q", "-p", "-P", "", "-N", passphrase, "-f", key]
    subprocess.run(words, check=True, timeout=60, capture_output=True)


def _sshd_config(root: Path, port: int, env: Mapping[str, str]) -> tuple[str, ...]:
    words = " ".join(f'"{key}={value}"' for key, value in env.items())
    return (
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {root}/host_key",
        f"AuthorizedKeysFile {root}/authorized",
        "PidFile none",
        "UsePAM no",
        "StrictModes no",
        "PermitRootLogin yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        f"SetEnv {words}",
    )


@contextlib.contextmanager
def _privileges() -> Iterator[None]:
    """Have the directory that an sshd of root's wants, for as long as any test runs one: without it
    each connection is reset."""
    if os.geteuid() != 0:
        yield
        return
    with _alone():
        if not PRIVILEGES.exists():
            PRIVILEGES.mkdir(mode=0o755)
            (PRIVILEGES / MADE).touch()
        used = os.open(PRIVILEGES, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(used, fcntl.LOCK_SH)
    try:
        yield
    finally:
        with _alone():
            with contextlib.suppress(BlockingIOError):  # other tests use it
                fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if (PRIVILEGES / MADE).exists():
                    (PRIVILEGES / MADE).unlink()
                    PRIVILEGES.rmdir()
            os.close(used)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """No other test makes or removes that directory meanwhile."""
    descriptor = os.open(PRIVILEGES.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make_program(path: Path, lines: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}")
    path.chmod(0o755)


def _answers(port: int, server: subprocess.Popen[bytes]) -> bool:
    assert server.poll() is None, "sshd ended"
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
