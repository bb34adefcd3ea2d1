"""Random operations on a file of the mount and on its shadow in memory: `fsx.py SEED COUNT`.

In the manner of fsx: every read is compared with the shadow, in the end the whole file.
"""

import mmap
import os
import random
import sys
from collections.abc import Callable

NAME = "fsx"
LARGEST = 512 << 10


class Both:
    """The file, and what it has to be."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shadow = bytearray()
        self.file = os.open(NAME, os.O_CREAT | os.O_RDWR, 0o644)
        self.told: list[str] = []

    def place(self) -> tuple[int, int]:
        return self.random.randrange(LARGEST), self.random.randrange(1, 70_000)

    def write(self) -> None:
        at, length = self.place()
        data = self.random.randbytes(min(length, LARGEST - at))
        self._note(f"write {at} {len(data)}")
        assert os.pwrite(self.file, data, at) == len(data)
        self._grow(at)
        self.shadow[at : at + len(data)] = data

    def append(self) -> None:
        size = min(self.random.randrange(1, 5000), LARGEST - len(self.shadow))
        data = self.random.randbytes(max(size, 0))
        self._note(f"append {len(data)}")
        other = os.open(NAME, os.O_WRONLY | os.O_APPEND)
        os.write(other, data)
        os.close(other)
        self.shadow += data

    def read(self) -> None:
        at, length = self.place()
        self._note(f"read {at} {length}")
        self._compare(at, os.pread(self.file, length, at), self.shadow[at : at + length])

    def truncate(self) -> None:
        size = self.random.randrange(LARGEST)
        self._note(f"truncate {size}")
        os.ftruncate(self.file, size)
        self._grow(size)
        del self.shadow[size:]

    def map_write(self) -> None:
        if len(self.shadow) < 2:
            return
        at = self.random.randrange(len(self.shadow))
        data = self.random.randbytes(min(self.random.randrange(1, 20_000), len(self.shadow) - at))
        self._note(f"mmap {at} {len(data)}")
        with mmap.mmap(self.file, len(self.shadow)) as memory:
            memory[at : at + len(data)] = data
            if self.random.random() < 0.5:
                memory.flush()
        self.shadow[at : at + len(data)] = data

    def map_read(self) -> None:
        if not self.shadow:
            return
        at, length = self.place()
        self._note(f"mmap-read {at} {length}")
        with mmap.mmap(self.file, 0, prot=mmap.PROT_READ) as memory:
            self._compare(at, memory[at : at + length], self.shadow[at : at + length])

    def punch(self) -> None:
        import ctypes

        at, length = self.place()
        self._note(f"punch {at} {length}")
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        assert not libc.fallocate(self.file, 3, at, length), os.strerror(ctypes.get_errno())
        end = min(at + length, len(self.shadow))
        if at < end:
            self.shadow[at:end] = bytes(end - at)

    def reopen(self) -> None:
        self._note("reopen")
        os.close(self.file)
        if self.random.random() < 0.5:
            os.rename(NAME, f"{NAME}-2")
            os.rename(f"{NAME}-2", NAME)
        self.file = os.open(NAME, os.O_RDWR)

    def sync(self) -> None:
        self._note("fsync")
        os.fsync(self.file)

    def size(self) -> None:
        self._note("size")
        assert os.fstat(self.file).st_size == len(self.shadow), self._tale("size")
        assert os.stat(NAME).st_size == len(self.shadow), self._tale("size")

    def _grow(self, size: int) -> None:
        if size > len(self.shadow):
            self.shadow += bytes(size - len(self.shadow))

    def _note(self, what: str) -> None:
        self.told.append(what)

    def _compare(self, at: int, found: bytes, wanted: bytes | bytearray) -> None:
        if found != wanted:
            pairs = zip(found, wanted, strict=False)
            first = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
            raise AssertionError(
                self._tale(f"at {at}: {len(found)} for {len(wanted)} bytes, differ at {first}")
            )

    def _tale(self, what: str) -> str:
        return f"{what} after {len(self.told)}: {'; '.join(self.told[-12:])}"

    def end(self) -> None:
        os.close(self.file)
        with open(NAME, "rb") as file:
            self._compare(0, file.read(), self.shadow)


def main() -> None:
    both = Both(int(sys.argv[1]))
    steps: list[Callable[[], None]] = [
        both.write, both.write, both.append, both.read, both.read, both.truncate, both.map_write,
        both.map_read, both.punch, both.reopen, both.sync, both.size,
    ]  # fmt: skip
    for _ in range(int(sys.argv[2])):
        both.random.choice(steps)()
    both.end()


if __name__ == "__main__":
    main()
