"""How many bytes a stream has carried, in a file that others may read meanwhile.

The file holds two numbers of 64 bits in the machine's byte order: the bytes that the guest has
received, and those that it has sent, all of the protocol included. It is mapped by the supervisor
and written through that mapping, so counting takes no system call, and the confined server has no
descriptor of the file.
"""

import os

from quicksand_smb.minimal_stdlib import Final

SUFFIX: Final = ".traffic"
"""Of the file beside the socket."""
RECEIVED: Final = 0
SENT: Final = 1
"""Places of the two numbers; received and sent by the guest."""

_SIZE: Final = 16
_PROT_READ_WRITE: Final = 3
_MAP_SHARED: Final = 1
"""Linux and macOS, sys/mman.h."""


def private_counters() -> memoryview:
    """Return counters that nobody reads."""
    return memoryview(bytearray(_SIZE)).cast("Q")


def map_counters(path: str) -> memoryview:
    """Return counters that are the content of a file, which begins anew; without such a file (the
    disk is full) nobody reads them. They stay mapped until the process ends."""
    return mapped_file(path, _SIZE).cast("Q")


def mapped_file(path: str, size: int) -> memoryview:
    """Return the memory of a file of zeros, which begins anew, or memory that nobody else sees if
    there can be no such file."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        return memoryview(bytearray(size))
    try:
        # Written, not only lengthened: a mapped page for which there is no room is a SIGBUS.
        if os.pwrite(descriptor, bytes(size), 0) != size:
            return memoryview(bytearray(size))
        return _mapped(descriptor, size)
    except OSError:
        return memoryview(bytearray(size))
    finally:
        os.close(descriptor)


def _mapped(descriptor: int, size: int) -> memoryview:
    """Python's own mmap would keep a descriptor."""
    import ctypes

    mmap = ctypes.CDLL(None, use_errno=True).mmap
    mmap.restype = ctypes.c_void_p
    mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    address = mmap(None, size, _PROT_READ_WRITE, _MAP_SHARED, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")
