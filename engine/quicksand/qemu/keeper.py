"""The keeper: the small parent process of a sandbox's QEMU. Run as a script, never imported;
its parts are in `keeping`.

It exists because these things must happen when no client is there to do them: QEMU's exit status is
recorded, the logs that a guest can write to without end stay bounded, a guest that was paused by a
full host disk or by a client that died goes on, and a sandbox that belongs to a script dies with
it, even on kill -9. It imports as little as it can, to start in milliseconds.

    keeper.py SANDBOX_DIR RUNTIME_DIR LOCK_FD {keep|discard} [NAME=VALUE...] -- QEMU ARG...

stdin   lifeline: when it closes, the sandbox dies at once. The byte ``D`` detaches it: from then on
        it lives by itself. (Every start begins attached, so that a cancelled one leaves nothing.)
        The byte ``K`` ends QEMU while the owner looks after the rest.
stdout  one line, ``started KEEPER_PID QEMU_PID`` or ``failed ERRNO``; it closes when all is over.
SIGTERM ends QEMU and then the keeper.

A sandbox can change its QEMU: going back to a checkpoint, a new process takes over from the old
one. So the runtime directory has a directory for each (the first is ``1``) and a symbolic link,
``current``. Clients ask for all that on the socket ``keeper.sock`` (see `Keeper.serve`).

At the end the runtime directory is removed; the sandbox's directory too if it is to be discarded
and no owner is left who would look at it first.

All inherited descriptors from 3 up are QEMU's (listening sockets, the lock).
"""

import os
import sys

if __name__ == "__main__":
    # Started without the directory of the script (-I). As a package it is compiled once only.
    sys.path.append(os.path.dirname(__file__))
    from keeping.loop import main  # type: ignore[import-not-found]

    main()
