"""Has our program ask the user ssh's question, and prints the answer. `askpass.sh` runs this file
by its path, with Python's own modules only, so that it starts at once."""

from __future__ import annotations

import os
import resource
import select
import socket
import stat
import sys

PROMPT_MAX = 4096
"""The most bytes of a prompt that are passed on."""

KINDS = ("confirm", "none")
"""The values of SSH_ASKPASS_PROMPT that ssh(1) knows."""

READ = 4096
LOOK_MS = 1000
"""Milliseconds between looks whether ssh still exists; usually its pipe says so at once."""

STDOUT = 1


def no_core_files() -> None:
    """Keep this process out of core files: it holds a password. (As in
    quicksand.qemu.keeper_parts.bounds, from which this program can import nothing.)"""
    most = 0 if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0 else 1
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


def main() -> int:
    """Return 0 if there was an answer; ssh then takes the output for the user's answer."""
    no_core_files()
    prompt = os.fsencode(sys.argv[1])[:PROMPT_MAX] if len(sys.argv) > 1 else b""
    kind = os.environ.get("SSH_ASKPASS_PROMPT", "")
    kind = kind if kind in KINDS else "secret"
    token = os.environ["QUICKSAND_ASKPASS_TOKEN"]
    parent = os.getppid()
    with socket.socket(socket.AF_UNIX) as program:
        try:
            program.connect(os.environ["QUICKSAND_ASKPASS_SOCKET"])
            program.sendall(f"{token} {kind} {len(prompt)}\n".encode() + prompt)
            answer = _wait(program, parent)
        except OSError:  # the program has ended
            return 1
    if not answer.endswith(b"\n"):
        return 1
    os.write(STDOUT, answer)
    return 0


def _wait(program: socket.socket, parent: int) -> bytes:
    """Return the bytes that the program sends until it closes the connection, and b"" once ssh has
    gone. Raises OSError."""
    watching = select.poll()
    watching.register(program, select.POLLIN)
    if stat.S_ISFIFO(os.fstat(STDOUT).st_mode):
        # With a notice, ssh gives /dev/null and waits for nothing.
        watching.register(STDOUT, 0)
    answer = b""
    while os.getppid() == parent:
        for descriptor, _ in watching.poll(LOOK_MS):
            if descriptor == STDOUT:
                return b""
            data = program.recv(READ)
            if not data:
                return answer
            answer += data
    return b""


if __name__ == "__main__":
    sys.exit(main())
