"""Counts the bytes of a stream in a file that other processes read.

The file holds two numbers of 64 bits in the machine's byte order: the bytes that the guest has
received, and those that it has sent, including all of the protocol. The supervisor maps the file.
So counting takes no system call, and the confined server has no descriptor of the file.
"""

import ctypes
import os

from quicksand_smb.minimal_stdlib import Final

SUFFIX: Final = ".traffic"
"""The suffix of the file, which stands beside the socket."""
RECEIVED: Final = 0
SENT: Final = 1
"""The places of the two numbers, from the guest's point of view."""

_SIZE: Final = 16
_PROT_READ_WRITE: Final = 3
_MAP_SHARED: Final = 1
"""Values of Linux and macOS (sys/mman.h)."""


def private_counters() -> memoryview:
    """Return counters that nobody reads."""
    return memoryview(bytearray(_SIZE)).cast("Q")


def map_counters(path: str) -> memoryview:
    """Return counters in a new file of zeros. If it cannot be made (the disk is full), nobody reads
    them. They stay mapped until the process ends."""
    return mapped_file(path, _SIZE).cast("Q")


def mapped_file(path: str, size: int) -> memoryview:
    """Return the mapped memory of a new file of zeros, or private memory if the file cannot be
    made."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        return memoryview(bytearray(size))
    try:
        # Write the zeros: a hole for which the disk has no space would be a SIGBUS.
        if os.pwrite(descriptor, bytes(size), 0) != size:
            return memoryview(bytearray(size))
        return _mapped(descriptor, size)
    except OSError:
        return memoryview(bytearray(size))
    finally:
        os.close(descriptor)


def _mapped(descriptor: int, size: int) -> memoryview:
    """Map a file. Python's own mmap would keep a descriptor open."""
    mmap = ctypes.CDLL(None, use_errno=True).mmap
    mmap.restype = ctypes.c_void_p
    mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    address = mmap(None, size, _PROT_READ_WRITE, _MAP_SHARED, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")
