"""`code-interpreter start` starts the server as the sandbox's user, unless it runs, and waits until
its first kernel does; `serve` is the server, `zygote` the process from which kernels are forked."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path

from quicksand_interpreter import zygote

HOST = "127.0.0.1"
PORT = 49999
"""The port that clients use."""

USER = "user"
PLACE = Path("/run/quicksand-interpreter")
START_S = 240.0
"""Seconds that the server and its first kernel have, on a host that emulates and is busy."""

POLL_S = 0.05
LOG_SHOWN = 2000
"""Characters of the end of the log that a failed start shows."""


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    match argv:
        case ["start", *rest] if rest in ([], ["--warm"]):
            return start(rest)
        case ["serve", *rest] if rest in ([], ["--warm"]):
            from quicksand_interpreter.serving import serve  # noqa: PLC0415

            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(serve(HOST, PORT, PLACE, is_warm=bool(rest)))
            return 0
        case ["zygote", *rest] if rest in ([], ["--warm"]):
            return zygote.run(str(Path(__file__).parents[1]), is_warm=bool(rest))
        case _:
            sys.stderr.write("usage: code-interpreter start|serve [--warm]\n")
            return 2


def start(options: list[str]) -> int:
    """Start the server, with options of `serve`, and wait until it is ready."""
    if (status := _health()) is None:
        user = _user()
        PLACE.mkdir(mode=0o700, exist_ok=True)
        os.chown(PLACE, user.pw_uid, user.pw_gid)
        log = PLACE / "server.log"
        process = _spawn(user, options, log)
        deadline = time.monotonic() + START_S
        while (status := _health()) is None and time.monotonic() < deadline:
            if process.poll() is not None:
                break
            time.sleep(POLL_S)
        if status is None:
            text = log.read_text(encoding="utf-8", errors="replace")[-LOG_SHOWN:]
            sys.stderr.write(f"the code interpreter did not start\n{text}")
            return 1
    if status != http.HTTPStatus.NO_CONTENT:
        sys.stderr.write(f"the code interpreter has no kernel: it answers {status}\n")
        return 1
    return 0


def _user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        return pwd.getpwuid(os.getuid())


def _spawn(user: pwd.struct_passwd, options: list[str], log: Path) -> subprocess.Popen[bytes]:
    env = {
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": user.pw_shell or "/bin/sh",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
    }
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, sys.argv[0], "serve", *options],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=user.pw_dir,
            env=env,
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=os.getgrouplist(user.pw_name, user.pw_gid),
            start_new_session=True,
        )


def _health() -> int | None:
    """Return the status of the server's answer; None if it does not run."""
    connection = http.client.HTTPConnection(HOST, PORT, timeout=START_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    except OSError:
        return None
    except http.client.HTTPException:
        return 0
    finally:
        connection.close()
