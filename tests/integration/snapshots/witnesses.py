"""Programs that run in a guest through checkpoints and reverts, and tell what they see
(`in_guest/`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from quicksand import Sandbox

from tests.conftest import Patience
from tests.integration.guests import say

PROGRAMS = Path(__file__).parent / "in_guest"

State = dict[str, Any]


class Witness:
    """One of them. It goes around for ever, and writes to /dev/shm/NAME what it has seen: `rounds`
    it has gone, and what was `wrong`. All that it knows is memory of the guest, and so reverted."""

    def __init__(self, vm: Sandbox, name: str) -> None:
        self._vm = vm
        self._name = name

    @classmethod
    async def start(cls, vm: Sandbox, name: str, *words: str) -> Self:
        """Start a program that does not run yet, and wait for its first word."""
        await vm.files.write(f"/root/{name}.py", (PROGRAMS / f"{name}.py").read_bytes())
        log = f"/dev/shm/{name}.log"
        await vm.spawn(f"exec python3 /root/{name}.py {' '.join(words)} 2> {log}", detach=True)
        witness = cls(vm, name)
        await witness.until(lambda state: state["rounds"] > 0, what="its first word")
        return witness

    async def end(self) -> None:
        """End it, if it runs where the guest is now."""
        await say(
            self._vm,
            # Not the shell that says this.
            f"pkill -KILL -f '[/]{self._name}.py'; while pgrep -f '[/]{self._name}.py'; do :; done"
            f"; rm -rf /dev/shm/{self._name}*",
        )

    async def tell(self, word: object) -> None:
        """Say something to it, as a file in memory."""
        await say(self._vm, f"echo {word} > /dev/shm/{self._name}.wanted")

    async def state(self) -> State | None:
        """What it says now; None before its first word."""
        path = f"/dev/shm/{self._name}"
        found = await self._vm.execute(f"cat {path} || {{ cat {path}.log >&2; exit 1; }}")
        if not found.stdout:
            assert "Traceback" not in found.stderr, found.stderr
            return None
        return dict(json.loads(found.stdout))

    async def until(self, test: Callable[[State], bool], *, what: str) -> State:
        """Wait for a state that passes the test, and has nothing wrong."""
        patience = Patience(60)
        while True:
            state = await self.state()
            if state is not None:
                assert not state["wrong"], state
                if test(state):
                    return state
            assert not patience.is_over(), f"waited for {what}: {state}"
            await asyncio.sleep(0.01)

    async def go_on(self, rounds: int = 3) -> State:
        """Wait until it has gone some more rounds."""
        now = await self.until(lambda _: True, what="a word")
        return await self.until(lambda state: state["rounds"] >= now["rounds"] + rounds, what="it")
