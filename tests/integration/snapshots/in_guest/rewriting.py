"""Runs in the guest: calls machine code of its own (x86-64), and rewrites it when it is told to.

Every function returns the version of its code. It says in /dev/shm/rewriting which version that
should be, how often it has called them all since it began, and what they returned instead. What a
processor remembers of code that is no longer there shows up as another version.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import time
from collections.abc import Iterator

PAGE = 4096
PAGES = 8
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_uint32)
INSIDE, CALLER, ACROSS = 100, 200, PAGE - 3
"""Where a page has its functions: one as it is, one that calls it, and one that ends on the next
page."""

DIRECTORIES = ("/root/rewriting", "/dev/shm/code")
"""Of files with code: on the disk, and in memory."""


def returning(version: int) -> bytes:
    """mov eax, VERSION; ret. Every byte of the number differs from another version's."""
    return b"\xb8" + bytes([version] * 4) + b"\xc3"


def calling(at: int, target: int) -> bytes:
    """call TARGET"""
    return b"\xe8" + (target - at - 5).to_bytes(4, "little", signed=True)


def page_of(version: int, number: int, end: bytes) -> bytes:
    """A page of code; ``end``: of the function that has begun on the page before."""
    page = bytearray(PAGE)
    across = returning(version)
    page[: len(end)] = end
    page[INSIDE : INSIDE + 6] = returning(version)
    page[CALLER : CALLER + 6] = calling(CALLER, INSIDE) + b"\xc3"
    page[ACROSS:] = across[:3]
    return bytes(page)


def code_of(version: int) -> bytes:
    """All pages, the last of which has only an end."""
    pages = [page_of(version, n, returning(version)[3:] if n else b"") for n in range(PAGES)]
    return b"".join(pages) + returning(version)[3:].ljust(PAGE, b"\0")


def addresses(base: int) -> Iterator[int]:
    for page in range(PAGES):
        for place in (INSIDE, CALLER, ACROSS):
            yield base + page * PAGE + place


def is_right(address: int, version: int) -> bool:
    return int(FUNCTION(address)()) == int.from_bytes(bytes([version] * 4), "little")


class Memory:
    """Code in memory, with one function that calls all others and is never rewritten."""

    def __init__(self) -> None:
        size = (PAGES + 2) * PAGE
        self._map = mmap.mmap(
            -1,
            size,
            prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC,
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
        )
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._all = self._base + (PAGES + 1) * PAGE
        code = b"\x53\x31\xdb"  # push rbx; xor ebx, ebx
        for address in addresses(self._base):
            code += calling(self._all + len(code), address) + b"\x01\xc3"  # add ebx, eax
        code += b"\x89\xd8\x5b\xc3"  # mov eax, ebx; pop rbx; ret
        self._map[(PAGES + 1) * PAGE : (PAGES + 1) * PAGE + len(code)] = code

    def write(self, version: int) -> None:
        self._map[: (PAGES + 1) * PAGE] = code_of(version)

    def wrong(self, version: int) -> list[str]:
        found = [
            f"in memory at {address - self._base:#x}"
            for address in addresses(self._base)
            if not is_right(address, version)
        ]
        value = int.from_bytes(bytes([version] * 4), "little")
        if FUNCTION(self._all)() != value * 3 * PAGES % 2**32:
            found.append("called by the one that calls all")
        return found


class File:
    """Code in a file, which is mapped for each look: so it may be read from the disk anew."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_replaced = path.endswith("replaced")

    def write(self, version: int) -> None:
        """Write it in place, or replace it as an installation does."""
        path = self._path + (".new" if self._is_replaced else "")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o755)
        os.pwrite(descriptor, code_of(version), 0)
        os.fsync(descriptor)
        os.close(descriptor)
        if self._is_replaced:
            os.rename(path, self._path)

    def wrong(self, version: int) -> list[str]:
        descriptor = os.open(self._path, os.O_RDONLY)
        everything = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        code = mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE, prot=everything)
        os.close(descriptor)
        first = ctypes.c_char.from_buffer(code)
        base = ctypes.addressof(first)
        found = [
            f"{self._path} at {address - base:#x}"
            for address in addresses(base)
            if not is_right(address, version)
        ]
        del first
        code.close()
        return found


def wanted() -> int:
    """The version that it is to have; 0 if nobody has said, or is about to."""
    try:
        with open("/dev/shm/rewriting.wanted") as file:
            return int(file.read() or 0)
    except FileNotFoundError:
        return 0


def main() -> None:
    for directory in DIRECTORIES:
        os.makedirs(directory, exist_ok=True)
    kinds = [f"{directory}/{kind}" for directory in DIRECTORIES for kind in ("here", "replaced")]
    places: list[Memory | File] = [Memory(), *(File(path) for path in kinds)]
    version = rounds = 0
    wrong: list[str] = []
    while True:
        asked = wanted()
        if asked and asked != version:
            version = asked
            for place in places:
                place.write(version)
        for place in places if version else ():
            wrong += place.wrong(version)
        rounds += 1
        with open("/dev/shm/rewriting.new", "w") as file:
            json.dump({"version": version, "rounds": rounds, "wrong": wrong[:20]}, file)
        os.rename("/dev/shm/rewriting.new", "/dev/shm/rewriting")
        time.sleep(0.002)


if __name__ == "__main__":
    main()
