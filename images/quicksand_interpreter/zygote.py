"""The process from which kernels are forked. It has loaded their modules, which takes an emulated
guest ten seconds; a fork takes no time, and shares the memory.

It reads requests as JSON from the socket on its stdin, answers each with the process id, and ends
when that socket is closed. Each kernel is the leader of a session, and ends with this process.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any

USUAL = (
    "ipykernel.debugger",
    "ipykernel.ipkernel",
    "ipykernel.kernelapp",
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.extensions.storemagic",
)
"""The modules that a kernel loads while it starts."""

MORE = (
    "numpy",
    "pandas",
    "matplotlib.backends.backend_agg",
    "matplotlib.pyplot",
    "pygments.formatters.terminal256",
    "stack_data",
)
"""The modules that most cells and each traceback use: loaded for a template. The back end of
matplotlib is not among them, since it looks for the kernel when it is loaded."""

REQUEST_MAX = 256 * 1024
OPTIONS = ("--HistoryManager.enabled=False",)


def run(place: str, *, is_warm: bool) -> int:
    """Serve until the socket is closed; returns the exit code. Modules below ``place`` are not for
    kernels."""
    requests = socket.socket(fileno=0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    # As in ipykernel, which does it too late for the modules loaded here.
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    # Without it kernels cannot be debugged; with it they take twice as long to start.
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    for name in USUAL + (MORE if is_warm else ()):
        importlib.import_module(name)
    del sys.modules["debugpy"]  # cells may load it
    sys.path[:] = [path for path in sys.path if not path.startswith(place)]
    while data := requests.recv(REQUEST_MAX):
        pid = os.fork()
        if pid == 0:
            requests.close()
            _become(json.loads(data))
        requests.send(str(pid).encode())
    return 0


def _become(request: dict[str, Any]) -> None:
    """Be a kernel, to its end."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.chdir(request["cwd"])
        sys.argv[:] = ["ipykernel_launcher"]
        parent = f"--IPKernelApp.parent_handle={os.getppid()}"
        sys.modules["ipykernel.kernelapp"].IPKernelApp.launch_instance(
            argv=["-f", request["connection"], parent, *OPTIONS]
        )
    except Exception:  # noqa: BLE001 - nobody else could tell it
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)
