"""Contexts: each has a kernel of its own, in which cells are run one after another."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from quicksand_interpreter import messages
from quicksand_interpreter.cells import before_first_cell, set_variables, unset_variables
from quicksand_interpreter.messages import Line
from quicksand_interpreter.server import RefusedError

CONTEXTS_MAX = 32
"""The most contexts. Each takes some 60 MiB of the guest's memory."""

PYTHON = "python"
LANGUAGES = (PYTHON,)


class KernelGoneError(Exception):
    """Raised when the kernel's process has ended, and its memory is lost."""


class Kernel(Protocol):
    """One process that runs cells."""

    @property
    def is_up(self) -> bool:
        """Whether it runs, as far as known."""

    async def start(self) -> None:
        """Start it, or another in its place. Raises KernelGoneError if it does not come up."""

    def execute(self, code: str) -> AsyncGenerator[Line]:
        """Run a cell. Closing this before its end interrupts the cell. Raises KernelGoneError."""

    async def run_silently(self, code: str) -> None:
        """Run code of which clients learn nothing. Raises KernelGoneError."""

    async def kill(self) -> None:
        """Kill its process; a cell that runs in it gets KernelGoneError."""

    async def end(self) -> None:
        """Kill it, and remove all its traces. Nobody runs a cell in it meanwhile."""


@dataclass(slots=True, kw_only=True, eq=False)
class Context:
    id: str
    language: str
    cwd: str
    kernel: Kernel
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_used: bool = False
    """Whether a client's cell was run in it."""

    def told(self) -> dict[str, str]:
        return {"id": self.id, "language": self.language, "cwd": self.cwd}


MakeKernel = Callable[[str], Kernel]
"""Makes a kernel for a working directory; it is not started yet."""


class Contexts:
    """Methods raise RefusedError."""

    def __init__(self, make_kernel: MakeKernel, home: str) -> None:
        """``home`` is the working directory unless a client names another."""
        self._make_kernel = make_kernel
        self._home = home
        self._known: dict[str, Context] = {}
        self._usual = self._add(PYTHON, home)
        self.variables: dict[str, str] = {}
        """The sandbox's variables."""

    def _add(self, language: str, cwd: str) -> Context:
        found = Context(
            id=secrets.token_hex(16), language=language, cwd=cwd, kernel=self._make_kernel(cwd)
        )
        self._known[found.id] = found
        return found

    def list(self) -> list[dict[str, str]]:
        return [context.told() for context in self._known.values()]

    def require(self, id_: str) -> Context:
        found = self._known.get(id_)
        if found is None:
            raise RefusedError(404, f"there is no context {id_!r:.80}")
        return found

    def usual(self, language: str) -> Context:
        """Return the context for cells that name none. It is made anew if it was removed."""
        _require_language(language)
        if self._usual.id not in self._known:
            self._usual = self._add(PYTHON, self._home)
        return self._usual

    async def create(self, language: str, cwd: str) -> Context:
        _require_language(language)
        cwd = cwd or self._home
        if not Path(cwd).is_absolute() or not Path(cwd).is_dir():
            raise RefusedError(400, f"cwd: there is no directory {cwd!r:.200}")
        if len(self._known) >= CONTEXTS_MAX:
            raise RefusedError(429, f"there are {CONTEXTS_MAX} contexts; remove one first")
        context = self._add(language, cwd)
        try:
            async with context.lock:
                await self._require_up(context)
        except BaseException:
            await self.remove(context)
            raise
        return context

    async def prepare(self, code: str = "") -> None:
        """Start the usual context's kernel, and run code in it that leaves no trace."""
        context = self.usual(PYTHON)
        async with context.lock:
            await self._require_up(context)
            if code:
                await context.kernel.run_silently(code)

    async def restart(self, context: Context) -> None:
        """Give it a new kernel. A running cell ends with the old one."""
        await context.kernel.kill()
        async with context.lock:
            await context.kernel.end()
            await self._require_up(context)

    async def remove(self, context: Context) -> None:
        """Remove it with its kernel. A running cell ends with that."""
        self._known.pop(context.id, None)
        await context.kernel.kill()
        async with context.lock:
            await context.kernel.end()

    async def close(self) -> None:
        for context in list(self._known.values()):
            await self.remove(context)

    async def _require_up(self, context: Context) -> None:
        if context.id not in self._known:
            raise RefusedError(404, f"the context {context.id} was removed")
        if context.kernel.is_up:
            return
        try:
            await context.kernel.start()
        except KernelGoneError as error:
            raise RefusedError(500, f"the kernel does not start: {error}") from error
        context.is_used = False

    async def execute(
        self, context: Context, code: str, variables: Mapping[str, str]
    ) -> AsyncGenerator[Line]:
        """Run a cell when earlier ones have ended. ``variables`` are set while it runs."""
        async with context.lock:
            await self._require_up(context)
            try:
                if not context.is_used:
                    context.is_used = True
                    await context.kernel.run_silently(before_first_cell(self.variables))
                async with (
                    _set_meanwhile(context.kernel, variables),
                    contextlib.aclosing(context.kernel.execute(code)) as lines,
                ):
                    async for line in lines:
                        yield line
            except KernelGoneError as error:
                text = f"{error}; its variables are gone, and the next cell gets a new one"
                yield messages.error("KernelGone", text, text)
        yield messages.END


@contextlib.asynccontextmanager
async def _set_meanwhile(kernel: Kernel, variables: Mapping[str, str]) -> AsyncIterator[None]:
    if not variables:
        yield
        return
    await kernel.run_silently(set_variables(variables))
    try:
        yield
    except KernelGoneError:
        raise  # they are gone with it
    except BaseException:
        with contextlib.suppress(KernelGoneError):
            await kernel.run_silently(unset_variables())
        raise
    await kernel.run_silently(unset_variables())


def _require_language(language: str) -> None:
    if language not in LANGUAGES:
        raise RefusedError(400, f"there is no kernel for {language!r:.40}; there is {PYTHON}")
