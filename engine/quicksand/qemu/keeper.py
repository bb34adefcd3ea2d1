"""The keeper: the small parent process of a sandbox's QEMU. It runs as a script and is never
imported; its parts are in `keeper_parts`.

It does the work that must go on while no client runs: it records QEMU's exit status, bounds the
logs that a guest can write without end, resumes a guest that was paused by a full host disk or by a
client that died, and kills a sandbox together with the script that owns it, even on kill -9. It
imports little, so that it starts in milliseconds.

    keeper.py SANDBOX_DIR RUNTIME_DIR LOCK_FD LEASH_FD {keep|discard} [NAME=VALUE...] -- QEMU ARG...
    keeper.py --adopt SANDBOX_DIR RUNTIME_DIR {keep|discard} PID FORWARDS OWNER [NAME=VALUE...]

The second form replaces a keeper that was killed, for the QEMU with that process id
(`keeper_parts.adopting`). FORWARDS are its port forwards in the form of its monitor, separated by
spaces; OWNER is the process id of its owner and when that has started, or empty.

LEASH   the read end of a pipe whose other end the owner holds. When that closes, the kernel itself
        kills every QEMU of the sandbox (`keeper_parts.leash`), even if the keeper is dead already.
stdin   the lifeline: when it closes, the keeper kills the sandbox at once. The byte ``D`` detaches
        the sandbox from its owner. (Every start is attached first, so that a cancelled one leaves
        nothing.) The byte ``K`` ends QEMU and leaves the rest to the owner.
stdout  one line, ``started KEEPER_PID QEMU_PID`` or ``failed ERRNO``; it closes when all is over.
SIGTERM ends QEMU and then the keeper.

A revert gives a sandbox a new QEMU process, which takes over from the old one. So the runtime
directory has a directory for each of them (the first is ``1``) and a symbolic link ``current``.
Clients send their requests to the socket ``keeper.sock`` (see `keeper_parts.client_requests`).

At the end the keeper removes the runtime directory. It removes the sandbox's directory too if that
is to be discarded and no owner is left who could look at it first.

All inherited descriptors from 3 up are for QEMU (listening sockets, the lock).
"""

import os
import sys

if __name__ == "__main__":
    # -I and -S leave every directory but Python's own out of sys.path, which saves each start 2 ms.
    # The engine is found behind those.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from quicksand.qemu.keeper_parts.entry import main

    main()
