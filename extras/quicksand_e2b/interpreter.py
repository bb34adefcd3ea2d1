"""The code interpreter in a guest: the port where clients reach it, and its start.

It is a server in the guest (`images/quicksand_interpreter`), so that its kernels are part of
checkpoints, pauses and forks. In a template it runs already; after a boot its first client starts
it.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Mapping

from quicksand import AgentRefusedError, GuestConnection, Sandbox

from quicksand_e2b.errors import ApiError

PORT = 49999
TEMPLATE = "code-interpreter-v1"
"""The template that clients name if their users name none."""

IMAGE = "code-interpreter"
PROGRAM = "/usr/lib/quicksand/code-interpreter"
START_S = 300.0
"""Seconds that its start may take; it gives itself less (`quicksand_interpreter.main`)."""

TELL_S = 30.0
ANSWER_MAX = 64 * 1024
ABSENT = 127
"""The exit code of a shell that does not find a program."""


def no_image() -> ApiError:
    return ApiError(
        404,
        f"{TEMPLATE} is the image {IMAGE!r}, which is not here: "
        f"`quicksand-tui images build {IMAGE}` makes it",
    )


class Interpreter:
    """The interpreter of one sandbox. Methods raise ApiError and QuicksandError."""

    def __init__(self, sandbox: Sandbox, variables: Callable[[], Mapping[str, str]]) -> None:
        """``variables`` returns those of the sandbox, which its kernels get."""
        self._sandbox = sandbox
        self._variables = variables
        self._lock = asyncio.Lock()
        self._is_told = False

    async def prepare(self) -> None:
        """Makes it run."""
        async with await self.dial():
            pass

    async def dial(self) -> GuestConnection:
        """Connects to it. Raises ApiError (501) if the guest has none."""
        async with self._lock:
            connection = await self._dial_or_start()
            if self._is_told:
                return connection
            async with connection:
                await _tell(connection, self._variables())
            self._is_told = True
            return await self._sandbox.dial(PORT)

    async def _dial_or_start(self) -> GuestConnection:
        try:
            return await self._sandbox.dial(PORT)
        except AgentRefusedError as error:
            if error.errno != errno.ECONNREFUSED:
                raise
            self._is_told = False
        command = f"[ -x {PROGRAM} ] || exit {ABSENT}; exec {PROGRAM} start"
        result = await self._sandbox.execute(command, timeout=START_S)
        if result.exit_code == ABSENT:
            raise ApiError(
                501,
                "the image of this sandbox has no code interpreter; make sandboxes of the template "
                f"{TEMPLATE}, for which `quicksand-tui images build {IMAGE}` makes the image",
            )
        if not result.ok:
            raise ApiError(500, result.stderr.strip()[-2000:] or "the interpreter did not start")
        return await self._sandbox.dial(PORT)


async def _tell(connection: GuestConnection, variables: Mapping[str, str]) -> None:
    """Gives it the sandbox's variables. Another server at that port may answer as it likes: the
    sandbox has these variables anyway."""
    body = json.dumps(dict(variables)).encode()
    head = f"PUT /variables HTTP/1.1\r\nHost: guest\r\nContent-Length: {len(body)}\r\n"
    size = 0
    try:
        async with asyncio.timeout(TELL_S):
            await connection.write(head.encode() + b"Connection: close\r\n\r\n" + body)
            while size < ANSWER_MAX and (data := await connection.read()):
                size += len(data)
    except (AgentRefusedError, TimeoutError):
        pass
