"""Finishing a revert that its client has begun and not finished.

In a revert in place (snapshots/in_place.py) the memory of the guest is written anew while its QEMU
stands still. Before that the client writes the mark ``unfinished`` into the machine's directory,
and when the guest has answered renames it to ``unstored``, which is there until the state before is
stored. Whoever finds the first without such a client may not resume the guest. Either names the
program that does what is left: {argv, env, task}, where the task is a text for the program's
standard input.
"""

import json
import os

from quicksand.base.regular import open_file

from .keeper_files import BoundedLog

TASK_MAX = 32 * 1024
"""Bytes of a task: they fit into the buffer of a pipe (pipe(7)), so that writing does not block."""


ATTEMPTS = 4
"""The most attempts to run the program of a mark, if it is killed each time."""

LINE_MAX = 500
"""Characters of a line in the log."""


class Finishers:
    """The programs that this keeper has started."""

    def __init__(self) -> None:
        self.pids: dict[int, str] = {}
        """The running programs by process id, each with its mark."""
        self.tried: dict[str, int] = {}
        """The number of attempts to run the program, by mark."""

    def start_once(self, mark: str, log: BoundedLog) -> None:
        """Start the program, unless that was done for this mark: a program that fails would fail
        again, and keep others from the sandbox meanwhile."""
        if mark not in self.tried:
            self.start(mark, log)

    def start(self, mark: str, log: BoundedLog) -> None:
        """Start the program that the file ``mark`` names. If that fails, which goes to ``log``, or
        if the program fails, the guest stays paused, and the next client that needs it has the
        revert finished."""
        self.tried[mark] = self.tried.get(mark, 0) + 1
        try:
            with open_file(mark) as file:
                program = json.load(file)
            argv = [str(word) for word in program["argv"]]
            env = {str(name): str(value) for name, value in program["env"].items()}
            task = str(program["task"]).encode()
            self.pids[spawn(argv, env, task)] = mark
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            text = f"quicksand: cannot finish a revert: {type(error).__name__}: {error}"
            log.write(f"{ascii(text)[1:-1][:LINE_MAX]}\n".encode("ascii"))

    def reap(self, log: BoundedLog) -> None:
        """Look which programs have ended. One that was killed says nothing about the next."""
        for pid, mark in list(self.pids.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self.pids[pid]
                if os.WIFSIGNALED(status) and os.path.exists(mark) and self.tried[mark] < ATTEMPTS:
                    self.start(mark, log)


def spawn(argv: list[str], env: dict[str, str], task: bytes) -> int:
    """Start a program with ``task`` on its standard input, in a session of its own; returns its
    process id. Raises OSError, ValueError."""
    if len(task) > TASK_MAX:
        raise ValueError("the task is too long")
    read, write = os.pipe()
    try:
        try:
            os.write(write, task)
        finally:
            os.close(write)
        actions = [
            (os.POSIX_SPAWN_DUP2, read, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            *((os.POSIX_SPAWN_CLOSE, number) for number in inheritable() if number > 2),
        ]
        return os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True)
    finally:
        os.close(read)


def inheritable() -> list[int]:
    """Return the descriptors of this process that a program would inherit: the sandbox's lock,
    which would make that program seem to run the sandbox."""
    found = []
    for name in os.listdir("/dev/fd"):
        try:
            if os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:
            continue  # that of the listing itself
    return found
