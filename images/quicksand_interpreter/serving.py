"""The server, with all its parts. Of the programs in `main` only this one loads Jupyter's client,
which takes an emulated guest seconds."""

from __future__ import annotations

import asyncio
import sys
import traceback
from pathlib import Path

from quicksand_interpreter.cells import warm
from quicksand_interpreter.contexts import Contexts
from quicksand_interpreter.forking import Zygote
from quicksand_interpreter.kernel import JupyterKernel
from quicksand_interpreter.server import listen
from quicksand_interpreter.service import Service


async def serve(host: str, port: int, place: Path, *, is_warm: bool) -> None:
    """Serve until cancelled. Raises OSError if the port is taken."""
    for path in place.iterdir():  # left by a killed server
        if path.suffix != ".log":
            path.unlink(missing_ok=True)
    options = ["--warm"] if is_warm else []
    zygote = Zygote([sys.executable, sys.argv[0], "zygote", *options])
    contexts = Contexts(lambda cwd: JupyterKernel(cwd, place, zygote), str(Path.home()))
    ready = asyncio.create_task(contexts.prepare(warm() if is_warm else ""))
    try:
        async with await listen(Service(contexts, ready).handle, host, port) as server:
            try:
                await ready
            except Exception:  # noqa: BLE001 - the next cell tries again
                traceback.print_exc()
            await server.serve_forever()
    finally:
        ready.cancel()
        await asyncio.gather(ready, return_exceptions=True)
        await contexts.close()
        zygote.close()
