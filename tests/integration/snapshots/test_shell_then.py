"""What a shell showed at a checkpoint."""

from __future__ import annotations

import asyncio

import pytest
from quicksand import Sandbox

pytestmark = pytest.mark.vm


async def until_shown(vm: Sandbox, word: bytes) -> None:
    async with asyncio.timeout(60):
        while True:
            tail = await vm.checkpoint_shell((await vm.checkpoint("look", replace=True)).id)
            if tail is not None and word in tail.output:
                return


async def test_a_checkpoint_keeps_what_the_shell_showed_and_so_does_a_revert() -> None:
    async with Sandbox(image="debian") as vm:
        bare = await vm.checkpoint("bare")
        assert await vm.checkpoint_shell(bare.id) is None
        shell = await vm.shell()
        await shell.write(b"echo $((6 * 7))-answers\n")
        await until_shown(vm, b"42-answers")
        await shell.write(b"echo $((6 * 8))-more\n")
        await until_shown(vm, b"48-more")
        await vm.revert("bare")
        (kept,) = [made for made in vm.checkpoints() if made.auto]
        tail = await vm.checkpoint_shell(kept.id)
        assert tail is not None and b"48-more" in tail.output and tail.columns > 0
