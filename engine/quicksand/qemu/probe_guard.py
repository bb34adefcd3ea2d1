"""Runs a program that may never end, and kills it as soon as stdin closes, that is when its caller
gives up or dies. It is run as a script:

    probe_guard.py [NAME=VALUE...] -- PROGRAM ARG...

It exits with the program's status, or 128 + N after signal N, as a shell does. The variables are
set for the program only, because they may name libraries that do not fit this interpreter.
"""

import os
import subprocess
import sys
import threading


def main() -> int:
    dashes = sys.argv.index("--")
    env = {**os.environ, **dict(word.split("=", 1) for word in sys.argv[1:dashes])}
    argv = sys.argv[dashes + 1 :]
    program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=env)
    threading.Thread(target=kill_at_the_end, args=(program,), daemon=True).start()
    status = program.wait()
    return status if status >= 0 else 128 - status


def kill_at_the_end(program: "subprocess.Popen[bytes]") -> None:
    os.read(0, 1)
    program.kill()


if __name__ == "__main__":
    sys.exit(main())
