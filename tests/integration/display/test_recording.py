"""Recordings of a real machine's screen."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from PIL import Image
from quicksand import Sandbox

pytestmark = pytest.mark.vm


async def test_a_recording_goes_on_after_a_revert(vm: Sandbox, tmp_path: Path) -> None:
    """The screen of this image stays as it is: one picture, shown all the time."""
    path = tmp_path / "x.png"
    size = await vm.query_display_size()
    await vm.checkpoint("one")
    async with vm.record(path, fps=20) as recording:
        assert recording.size == size
        pid = recording.pid
        await vm.revert("one")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(recording.wait(), 3)
        assert recording.pid == pid
        await by_the_command(vm, tmp_path / "y.webp")
        await vm.stop()
        done = await asyncio.wait_for(recording.wait(), 60)
    assert (done.why, done.pictures) == ("sandbox", 1)
    assert done.seconds > 3
    with Image.open(path) as image:
        assert image.size == size
        assert image.info["duration"] == pytest.approx(done.seconds * 1000, abs=2)


async def by_the_command(vm: Sandbox, path: Path) -> None:
    """It is started as a plain sh starts what has an & behind it: SIGINT is ignored."""
    words = "trap '' INT; exec \"$@\""
    command = [sys.executable, "-m", "quicksand_tui", "record", vm.name, str(path)]
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", words, "sh", *command), stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            assert process.stderr is not None
            assert b"for 10m at most" in await process.stderr.readline()
            os.kill(process.pid, signal.SIGINT)
            os.kill(process.pid, signal.SIGTERM)
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, said
    assert b"1 picture of " in said
    with Image.open(path) as image:
        image.load()
        assert image.format == "WEBP"
    assert [found.name for found in path.parent.glob("*y.webp*")] == ["y.webp"]
