"""Descriptors and the event loop."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from quicksand_tui.cli.guests.executing import QUEUE_MAX, FdReader, FdWriter, same_file

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe; tests may close its ends."""
    ends = os.pipe()
    yield ends
    for descriptor in ends:
        try:
            os.close(descriptor)
        except OSError:
            continue


def read_all(descriptor: int) -> str:
    digest = hashlib.sha256()
    while data := os.read(descriptor, 1 << 16):
        digest.update(data)
    return digest.hexdigest()


async def test_bytes_are_written_in_order_and_whole(pipe: Pipe) -> None:
    chunks = [os.urandom(n * 977 % 300_000) for n in range(60)]
    reading = asyncio.create_task(asyncio.to_thread(read_all, pipe[0]))
    writer = FdWriter(pipe[1])
    for chunk in chunks:
        await writer.write(chunk)
    await writer.close()
    os.close(pipe[1])
    assert await reading == hashlib.sha256(b"".join(chunks)).hexdigest()


async def test_a_slow_reader_holds_the_producer_up_but_not_the_loop(pipe: Pipe) -> None:
    writer = FdWriter(pipe[1])
    written = 0

    async def produce() -> None:
        nonlocal written
        while True:
            await writer.write(bytes(64 * 1024))
            written += 64 * 1024

    task = asyncio.create_task(produce())
    last = -1
    while written != last:
        last = written
        for _ in range(200):
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
    assert written <= QUEUE_MAX + 256 * 1024
    task.cancel()
    await asyncio.wait((task,))
    os.close(pipe[0])  # lets the writing thread end
    with pytest.raises(BrokenPipeError):
        await writer.close()


async def test_a_reader_that_is_gone_is_told_of(pipe: Pipe) -> None:
    os.close(pipe[0])
    writer = FdWriter(pipe[1])
    with pytest.raises(BrokenPipeError):
        while True:
            await writer.write(b"x" * 1000)
            await asyncio.sleep(0)
    with pytest.raises(BrokenPipeError):
        await writer.close()


async def test_descriptors_that_somebody_made_non_blocking_work_too(pipe: Pipe) -> None:
    for descriptor in pipe:
        os.set_blocking(descriptor, False)
    writer, reader = FdWriter(pipe[1]), FdReader(pipe[0])
    data = os.urandom(1_000_000)

    async def produce() -> None:
        await writer.write(data)
        await writer.close()
        os.close(pipe[1])

    task = asyncio.create_task(produce())
    assert b"".join([piece async for piece in reader]) == data
    await task


async def test_a_file_is_read_to_its_end_and_the_end_stays(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(3_000_000))
    descriptor = os.open(path, os.O_RDONLY)
    reader = FdReader(descriptor)
    assert b"".join([piece async for piece in reader]) == path.read_bytes()
    assert [piece async for piece in reader] == []
    os.close(descriptor)


async def test_reading_ahead_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(8 * 1024 * 1024))
    descriptor = os.open(path, os.O_RDONLY)
    reader = FdReader(descriptor)
    await anext(reader)
    position = -1
    while position != (position := os.lseek(descriptor, 0, os.SEEK_CUR)):
        await asyncio.sleep(0.05)
    assert position <= 4 * 256 * 1024
    async for _ in reader:
        pass
    os.close(descriptor)


async def test_what_cannot_be_read_is_an_error() -> None:
    descriptor = os.open("/", os.O_RDONLY)
    with pytest.raises(IsADirectoryError):
        await anext(FdReader(descriptor))
    os.close(descriptor)


def test_the_same_file_is_recognised(pipe: Pipe, tmp_path: Path) -> None:
    other = os.dup(pipe[1])
    assert same_file(pipe[1], other)
    os.close(other)
    (tmp_path / "x").touch()
    descriptor = os.open(tmp_path / "x", os.O_RDONLY)
    assert not same_file(pipe[1], descriptor)
    os.close(descriptor)
