"""Exit codes, the same for every command."""

from __future__ import annotations

from enum import IntEnum

BY_SIGNAL = 128


class Exit(IntEnum):
    """What an exit code means. `run`, `exec` and `shell` otherwise pass on the command's own."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    TIMEOUT = 124
    SANDBOX_FAILED = 125
    CANNOT_RUN = 126
    NOT_FOUND = 127
    INTERRUPTED = 130
    READER_GONE = 141


MEANINGS = {
    Exit.OK: "it worked",
    Exit.FAILURE: "it failed; stderr says why",
    Exit.USAGE: "the command line is wrong",
    Exit.TIMEOUT: "run, exec: --timeout ran out",
    Exit.SANDBOX_FAILED: "run, exec, shell: the sandbox failed, not the command in it",
    Exit.CANNOT_RUN: "run, exec: the command is there but cannot be run",
    Exit.NOT_FOUND: "run, exec: there is no such command in the sandbox",
    Exit.INTERRUPTED: "interrupted by Ctrl-C (128 + n after any other signal n)",
    Exit.READER_GONE: "whoever read the output has closed it",
}
