"""The keeper's command line (see keeper.py): it starts QEMU, or adopts one that runs."""

import os
import sys

from .bounds import no_core_files
from .client_requests import serve
from .loop import Keeper
from .owner import parent


def main() -> None:
    os.umask(0o077)
    no_core_files()
    owner = parent()
    # Forked, so that init is its parent and the client never has to wait for it.
    if os.fork():
        os._exit(0)
    if sys.argv[1] == "--adopt":
        from .adopting import adopt  # starts do without it  # noqa: PLC0415

        sandbox_dir, runtime_dir, end, pid, forwards, owned_by, *words = sys.argv[2:]
        keeper = Keeper(sandbox_dir, runtime_dir, None, None, end == "discard", _env(words), serve)
        adopt(keeper, int(pid), forwards.split(), owned_by)
        return
    sandbox_dir, runtime_dir, lock, leash, end, *rest = sys.argv[1:]
    dashes = rest.index("--")
    env = _env(rest[:dashes])
    keeper = Keeper(sandbox_dir, runtime_dir, int(lock), int(leash), end == "discard", env, serve)
    keeper.run(rest[dashes + 1 :], owner)


def _env(words: list[str]) -> dict[str, str]:
    return {**os.environ, **dict(word.split("=", 1) for word in words)}
