"""The tier "pages": memory is kept in files of pages, from which a new QEMU's memory is filled; the
devices' state is a file beside them.

In the pause pages are only copied to prefaulted memory (memory_copying.py). Those that are new are
found and written after the VM runs again (storing.py).

A PC's guest runs its firmware again when it reboots. QEMU keeps it in a block of memory beside the
guest's RAM and expects a migration to bring it: a QEMU that waits for incoming state drops its own
copy (QEMU, hw/core/loader.c, rom_reset). This tier loads only the devices' state that way, so it
keeps the firmware with the checkpoint. Checkpoints with the same firmware share one file.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quicksand.base.capacity import check_space
from quicksand.base.effort import best_effort
from quicksand.base.errors import HostError, MachineError
from quicksand.base.files import map_os_errors
from quicksand.base.hypervisor import Hypervisor
from quicksand.base.processes import boot_id
from quicksand.base.regular import create, open_regular
from quicksand.base.threads import in_stoppable_thread, in_thread_to_the_end
from quicksand.records.layout import MachineDir, SandboxDir
from quicksand.records.nodes import BLANK, File, GivenUp, Head, Node
from quicksand.records.sandboxes import RunState
from quicksand.snapshots import comparing
from quicksand.snapshots.capture import Capture, Way
from quicksand.snapshots.comparing import MemoryCheck
from quicksand.snapshots.guest_ram import PAGE, GuestRam
from quicksand.snapshots.keeping import forget
from quicksand.snapshots.memory_copying import Copier, Taken, track_from
from quicksand.snapshots.page_set import PageSet
from quicksand.snapshots.pages import CHUNK, MappedFile, PageIndex, write_file
from quicksand.snapshots.storing import Storage, Stored, find_image
from quicksand.snapshots.tracking import ANONYMOUS, find_level
from quicksand.snapshots.verified import Verified
from quicksand.things.checkpoint import DISK, PAGES

PC = "x86_64"
"""The only architecture concerned: a `virt` machine's kernel is in the guest's RAM, and QEMU loads
it there again."""

END = 1 << 32
"""The guest address at which the firmware of a PC ends (QEMU, x86_bios_rom_init)."""

SIZE_MAX = 16 * 1024 * 1024


async def find_firmware(hypervisor: Hypervisor, pid: int, arch: str) -> GuestRam | None:
    """The firmware's place in QEMU's memory; None if no firmware must be kept. Raises
    MachineError."""
    if arch != PC:
        return None
    return await _locate(hypervisor, pid, await hypervisor.firmware_size())


async def _locate(hypervisor: Hypervisor, pid: int, size: int) -> GuestRam:
    if not 0 < size <= SIZE_MAX or size % PAGE:
        raise MachineError(f"QEMU says that the machine's firmware has {size} bytes")
    return GuestRam(pid, await hypervisor.host_address(END - size), size)


def read_firmware(where: GuestRam) -> bytearray:
    """Copy the firmware from QEMU's memory. A guest cannot change it. Raises MachineError."""
    data = bytearray(where.size)
    where.read([(0, where.size // PAGE)], memoryview(data))
    return data


def keep_firmware(data: bytearray, memory: Path) -> File:
    """Write the firmware to a file in the directory ``memory``, unless it is there. Raises
    HostError."""
    path = memory / f"{hashlib.sha256(data).hexdigest()[:24]}.rom"
    if not path.exists():
        return write_file(path, iter([memoryview(data)]))
    crcs = [zlib.crc32(data[at : at + CHUNK]) for at in range(0, len(data), CHUNK)]
    return File(name=path.name, size=len(data), crcs=tuple(crcs))


async def put_firmware(hypervisor: Hypervisor, pid: int, memory: Path, file: File) -> None:
    """Copy the firmware into the memory of a QEMU that waits for incoming state. Raises
    HistoryError naming a damaged file, MachineError."""
    where = await _locate(hypervisor, pid, file.size)
    with MappedFile(memory / file.name, file) as mapped:
        where.write([(0, file.size // PAGE)], mapped.data)


YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
"""Whether processes may read each other's memory (Linux, Documentation/admin-guide/LSM/Yama.rst).
"""


class PagesCapture(Capture):
    """A checkpoint of the tier "pages" in the making."""

    tier = PAGES

    _storage: Storage | None = None
    _check: MemoryCheck | None = None
    _stored: Stored | None = None
    _is_announced = False

    async def _prepare_memory(self) -> None:
        image = find_image(self._place, self._head.memory)
        self._ram = await GuestRam.locate(
            self._hypervisor, self._run.qemu_pid, image, self._size, self._arch
        )
        self._check = MemoryCheck(self._ram) if comparing.is_on() else None
        self._rom_at = await find_firmware(self._hypervisor, self._run.qemu_pid, self._arch)
        await in_thread_to_the_end(self._prepare_copy)
        await self._copier.copy_before(self._briefly_paused)

    def _prepare_copy(self) -> None:
        # Now, since this QEMU may get another state as soon as the pause is over.
        self._rom = read_firmware(self._rom_at) if self._rom_at is not None else None
        self._storage = Storage(
            self._history, self.id, self._head, run=self._run.run, size=self._size
        )
        self._copier = Copier(
            self._ram,
            self._machine.tracked,
            self._run.run,
            self._storage,
            fate=self._fate,
            held_at=self._place.held(self.id),
        )
        check_space(self._place.memory, self._copier.prepare())

    async def _copy_before(self) -> None:
        await asyncio.to_thread(self._copier.reserve)

    async def _copy_paused(self) -> None:
        copying = asyncio.to_thread(self._copier.copy_rest)
        # Both are awaited, so that neither is still working when the VM runs again.
        found = await asyncio.gather(copying, self._freeze_rest(), return_exceptions=True)
        for failed in (result for result in found if isinstance(result, BaseException)):
            raise failed
        if self._check is not None:
            await asyncio.to_thread(self._check.copy)

    async def _freeze_rest(self) -> None:
        """Save the devices' state and switch the disk, while the memory is copied."""
        path = self.directory / "devices"
        await self._hypervisor.save_devices(path)
        await self._disk.turn()

    @property
    def note(self) -> str:
        return self._copier.note

    @property
    def taken(self) -> Taken:
        return self._copier.taken

    def _store_memory(self) -> dict[str, Any]:
        assert self._storage is not None
        self._copier.store()
        stored = self._stored = self._storage.finish()
        self._storage.close()
        if self._check is not None:
            self._check.compare(self._place, stored)
        return stored.describe(self.directory, self._size, self._keep_firmware())

    def _keep_firmware(self) -> File | None:
        return keep_firmware(self._rom, self._place.memory) if self._rom is not None else None

    def announce(self, tag: str, shape: dict[str, Any]) -> None:
        """Note on disk that this present is about to be given up, and the tag of its checkpoint.
        Raises MachineError if the earlier present could not be kept yet, HostError."""
        if self._place.given_up.exists():
            raise MachineError("the state before the last revert could not be kept yet")
        none: dict[str, Any] = {
            **{"tier": DISK, "tier_note": "", "layers": self._disk.frozen, "bytes_written": 0},
            **{"memory": BLANK, "pages": (), "index": None, "devices": None},
        }
        given = GivenUp(
            node=self._describe(tag, "", shape, {"auto": True}, none),
            head=self._head,
            run=self._run.run,
            size=self._size,
            since=self._copier.taken.since,
            firmware=self._keep_firmware(),
            boot=boot_id(),
        )
        self._is_announced = True
        given.write(self._place)

    def secure(self) -> None:
        """Have everything, once frozen and announced, where it outlives this process. Raises
        HistoryError, HostError."""
        index = PageIndex(self._size, tuple(self._copier.held)).encode()
        path = self._place.held_index(self.id)
        with map_os_errors(path), create(path) as file:
            file.write(index)

    async def leave(self) -> None:
        """Leave the storing to other clients, since this one cannot."""

        def close() -> None:
            self._copier.close()
            if self._storage is not None:
                self._storage.close()

        await in_thread_to_the_end(close)

    def _store(self, *args: Any) -> Node:
        node = super()._store(*args)
        self._forget_held()
        return node

    def _discard_files(self) -> None:
        if self._storage is not None:
            self._copier.close()
            self._storage.close()
        self._forget_held()
        super()._discard_files()

    def _forget_held(self) -> None:
        with best_effort("remove what was held", self._place.engine_log, HostError, OSError):
            if self._is_announced:
                self._is_announced = False
                forget(self._place, self.id)
            self._place.held(self.id).unlink(missing_ok=True)

    async def advance_head(self, node: Node) -> None:
        assert self._stored is not None, "store comes first"
        head = Head(
            layers=node.layers,
            top=self._disk.layer,
            node=node.id,
            run=self._run.run,
            # QEMU still maps the image it started with, whatever image the checkpoint has.
            memory=self._head.memory,
            stored=self._stored.stored,
            machine=self._head.machine,
        )
        await in_thread_to_the_end(lambda: self._history.set_head(head))
        await asyncio.to_thread(self._copier.commit, node.id)


async def load_memory(
    place: SandboxDir, machine: MachineDir, node: Node, hypervisor: Hypervisor, pid: int
) -> None:
    """See `Way.load_memory`."""
    image = find_image(place, node.memory)
    if node.firmware is not None:
        await put_firmware(hypervisor, pid, place.memory, node.firmware)
    size = int(node.shape["memory"])
    ram = await GuestRam.locate(hypervisor, pid, image, size, node.shape["arch"])
    await in_stoppable_thread(lambda check: load_pages(place, node, ram, check))


async def track(
    place: SandboxDir, machine: MachineDir, node: Node, hypervisor: Hypervisor, run: RunState
) -> None:
    """See `Way.track`."""
    image, size = find_image(place, node.memory), int(node.shape["memory"])
    ram = await GuestRam.locate(hypervisor, run.qemu_pid, image, size, node.shape["arch"])
    await in_thread_to_the_end(lambda: track_from(node.id, ram, machine.tracked, run.run))


def load_pages(place: SandboxDir, node: Node, ram: GuestRam, check: Callable[[], None]) -> None:
    """Write the checkpoint's pages to the memory of a fresh QEMU. ``check`` is called now and then,
    and may stop the work by an exception. Raises HistoryError naming a damaged file, MachineError.
    """
    with contextlib.closing(PageSet(place, node, Verified.of_user(), check)) as pages:
        pages.load(ram, check)


async def load_devices(place: SandboxDir, node: Node, hypervisor: Hypervisor) -> None:
    """See `Way.load_devices`."""
    file = node.devices
    assert file is not None, "a checkpoint of this tier has its devices in a file"
    path = place.checkpoints / node.id / "devices"
    await asyncio.to_thread(lambda: MappedFile(path, file).close())
    descriptor = open_regular(path)
    try:
        await hypervisor.load_devices(descriptor, name=node.tag)
    finally:
        os.close(descriptor)


def why_not(pid: int | None) -> tuple[str, str]:
    """See `Way.refusal`."""
    if not sys.platform.startswith("linux"):
        return f"the tier {PAGES.name!r} needs Linux, and this is {sys.platform}", ""
    problem = why_not_readable(pid)
    if not problem:
        return "", ""
    return f"the memory of QEMU cannot be read: {problem}", _how_to_trace()


def _why_slow(pid: int | None) -> str:
    # For a running QEMU the capture's own note tells this.
    if pid is not None:
        return ""
    level = find_level()
    return level.why if level.name == ANONYMOUS else ""


def _copied(note: str) -> str:
    if note:
        return "all that the guest has written since its QEMU started"
    level = find_level()
    name = f"{level.name}, since {level.why}" if level.why else level.name
    return f"what the guest has written since the last checkpoint (level {name})"


def why_not_readable(pid: int | None = None) -> str:
    """The reason why this process may not read the memory of the QEMU ``pid`` or, without it, of a
    child; "" if it may. It is tried, since security modules, seccomp filters and kernels differ.
    """
    if pid is not None:
        return _try_reading(pid)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        # Popen returns before the program is mapped; when the program answers, it is.
        child.stdin.write(b"?")
        child.stdin.flush()
        child.stdout.read(1)
        return _try_reading(child.pid)


def _try_reading(pid: int) -> str:
    """Read the first mapped page, where a program's ELF header is, and its page map entry."""
    page = memoryview(bytearray(PAGE))
    try:
        line = Path(f"/proc/{pid}/maps").read_bytes().split(b"\n", 1)[0]
        ram = GuestRam(pid, int(line.split(b"-")[0], 16), PAGE)
        ram.written()
        ram.read([(0, 1)], page)
    except (MachineError, OSError, ValueError) as error:
        return str(error)
    return "" if bytes(page[:4]) == b"\x7fELF" else "something else was read"


def _how_to_trace() -> str:
    try:
        scope = YAMA.read_text(encoding="ascii").strip()
    except OSError:
        scope = ""
    if scope in ("2", "3"):
        return f"{YAMA} is {scope}: it must be 0 or 1 (`sysctl kernel.yama.ptrace_scope=1`)"
    return "a container's filter must allow process_vm_readv and process_vm_writev"


WAY = Way(
    tier=PAGES,
    capture=PagesCapture,
    fits=lambda features: features.devices_alone,
    refusal=why_not,
    note=_why_slow,
    copied=_copied,
    load_memory=load_memory,
    track=track,
    load_devices=load_devices,
)
