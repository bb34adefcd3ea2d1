"""A check of the engine itself, for tests and for doubts about a kernel: each checkpoint of the
tier "pages" is compared with all of the guest's memory, of which the pause makes a copy."""

from __future__ import annotations

from contextlib import ExitStack

from quicksand.base.buffers import new_buffer, prefault
from quicksand.base.settings import CHECK_MEMORY, ON
from quicksand.records.layout import SandboxDir
from quicksand.snapshots.differences import Comparer, MemoryDiffersError, address_of
from quicksand.snapshots.guest_ram import PAGE, GuestRam
from quicksand.snapshots.image import own_pages
from quicksand.snapshots.pages import ZEROS, MappedFile, PageRun, overlay_runs
from quicksand.snapshots.storing import Stored

VARIABLE = CHECK_MEMORY.variable
"""Environment variable: "on" or "1" turns the check on. A pause then takes as long as copying all
memory, and the copy is held in memory."""


def is_on() -> bool:
    """Whether checkpoints are to be compared. Raises ConfigError."""
    return CHECK_MEMORY.read() == ON


class MemoryCheck:
    """The comparison of one checkpoint. Call `copy` while the VM is paused, `compare` when the
    memory is stored."""

    def __init__(self, ram: GuestRam) -> None:
        self._ram = ram
        self._pages = ram.size // PAGE
        self._copy = memoryview(b"")

    def copy(self) -> None:
        """Copy all memory. Raises MachineError."""
        memory = new_buffer(self._ram.size)
        prefault(memory, 0, self._ram.size)
        self._copy = memoryview(memory)
        self._ram.read([(0, self._pages)], self._copy)

    def compare(self, place: SandboxDir, stored: Stored) -> None:
        """Raise MemoryDiffersError, naming pages, if the stored memory differs from the copy."""
        with ExitStack() as stack:
            files = [
                stack.enter_context(MappedFile(place.memory / file.name, file)).data
                for file in stored.files
            ]
            rest = PageRun(0, self._pages, ZEROS, 0)
            if stored.image is not None:
                image = MappedFile(place.memory / stored.image.name, stored.image)
                files.append(stack.enter_context(image).data)
                (rest,) = own_pages([(0, self._pages)], len(files) - 1)
            wrong = [
                page
                for run in overlay_runs(stored.runs, [rest])
                for page in self._differing(run, files)
            ]
        if wrong:
            first = ", ".join(map(str, wrong[:8]))
            raise MemoryDiffersError(
                f"the checkpoint is not the guest's memory: {len(wrong)} of {self._pages} pages "
                f"differ, the first are {first}"
            )

    def _differing(self, run: PageRun, files: list[memoryview]) -> list[int]:
        compare = Comparer()
        here = address_of(self._copy) + run.first * PAGE
        if run.file == ZEROS:
            same = compare.find_zeros(here, run.count)
        else:
            there = address_of(files[run.file]) + run.at * PAGE
            same = compare.find_equal(here, there, run.count)
        return [run.first + page for page, equal in enumerate(same) if not equal]
