"""The environment that QEMU's heap gets, asked of the C library itself."""

from __future__ import annotations

import subprocess
import sys

import pytest
from quicksand.qemu.process import LEAN

BLOCKS = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(4 << 20))  # from here on, glibc would serve less than this from the heap
blocks = [libc.malloc(131_400) for _ in range(40)]
word = ctypes.sizeof(ctypes.c_size_t)
sizes = [ctypes.c_size_t.from_address(block - word).value for block in blocks]
print(sum(bool(size & 2) for size in sizes))
"""
"""How many of forty buffers of a connection are mapped for themselves: bit 1 of a block's size says
so (IS_MMAPPED of glibc's malloc)."""


def mapped(environment: dict[str, str]) -> int:
    program = [sys.executable, "-IS", "-c", BLOCKS]
    return int(subprocess.run(program, env=environment, capture_output=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's own")
def test_the_buffers_of_connections_are_mapped_for_themselves_whatever_was_freed_before() -> None:
    assert mapped({}) < 20
    assert mapped(LEAN) > 35
