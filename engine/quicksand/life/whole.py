"""The late imports of a process with a sandbox. It may run for days while the package is upgraded,
so once it has opened a running one, it soon imports (`make_whole_soon`) all modules that a clean
end needs, and then needs no file of the package any more."""

import atexit
import contextlib
import functools
import os
import sys
import threading
from importlib import import_module

from quicksand.base.on_demand import homes_of
from quicksand.life import machinery

_LATER = (
    *("disks.images.vmlinux", "disks.packages.installed", "life.cloning", "life.sandbox_display"),
    *("life.sandbox_mounts", "life.sandbox_removal", "qemu.keeper_successor"),
)
"""Other modules that are imported only when they are used (scripts/deferred_imports.toml)."""


WHOLE_AFTER_S = 1.0
"""Seconds for the first command, before the imports begin: most programs that open a sandbox have
ended by then."""
WHOLE_PAUSE_S = 0.01
"""Seconds between two imports: other Python code waits for one import at most."""

_importing = threading.Lock()
# A child forked during an import would wait for ever for the half-imported module.
os.register_at_fork(
    before=_importing.acquire,
    after_in_parent=_importing.release,
    after_in_child=_importing.release,
)


def make_whole() -> None:
    """Import all modules that a sandbox's end, or any operation on it, may need."""
    for module in _modules():
        import_module(module)


@functools.cache
def make_whole_soon() -> threading.Thread:
    """Do the work of `make_whole` in small pieces, on a thread that begins a second later. Returns
    that thread, the same one each time."""
    ending = threading.Event()
    thread = threading.Thread(
        target=_make_whole, args=(ending,), name="quicksand-imports", daemon=True
    )
    thread.start()
    atexit.register(_end, thread, ending)
    return thread


# A forked child does not have the thread, and may start sandboxes of its own.
os.register_at_fork(after_in_child=make_whole_soon.cache_clear)


def _make_whole(ending: threading.Event) -> None:
    pause = WHOLE_AFTER_S
    for module in _modules():
        if module not in sys.modules:
            if ending.wait(pause):
                return
            # An upgrade may be under way: whoever needs the module then gets the error.
            with _importing, contextlib.suppress(ImportError, OSError, SyntaxError):
                import_module(module)
            pause = WHOLE_PAUSE_S


def _end(thread: threading.Thread, ending: threading.Event) -> None:
    """Make a process that ends wait for the import under way, but not for the rest."""
    ending.set()
    thread.join()


def _modules() -> list[str]:
    used = dict.fromkeys(home[0] for home in homes_of(machinery).values())
    return [*used, *(f"quicksand.{module}" for module in _LATER)]
