"""Memory on disk, against a model: a dictionary of pages for each checkpoint."""

from __future__ import annotations

import errno
import os
import random
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand.base.errors import HistoryError
from quicksand.base.files import map_os_errors, try_lock
from quicksand.base.threads import Stopped
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import BLANK, File, Head, Node, new_id
from quicksand.snapshots import image, page_set, paged, pages, restore, stepwise, storing
from quicksand.snapshots.guest_ram import PAGE, GuestRam
from quicksand.snapshots.history import History
from quicksand.snapshots.image import identify_image
from quicksand.snapshots.pages import PageIndex, write_file
from quicksand.snapshots.storing import Storage, load_index, memory_files
from quicksand.things.checkpoint import find_tier

from tests.conftest import examples

PAGES = 96
SIZE = PAGES * PAGE

Write = tuple[int, int, int]
"""First page, how many, what they are filled with."""

Memory = dict[int, int]
"""Page -> what it is filled with; pages of zeros are left out."""


def filled(content: int) -> bytes:
    return bytes([content]) * PAGE


def nothing() -> None:
    """No reason to stop."""


def runs_of(numbers: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for page in sorted(numbers):
        if found and sum(found[-1]) == page:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((page, 1))
    return found


class FakeRam:
    """Memory that maps an image privately, as a QEMU's does."""

    size = SIZE

    def __init__(self, image: Path | None, touched: Memory) -> None:
        """``touched``: what QEMU itself writes at its start."""
        self.below = image.read_bytes() if image is not None else bytes(SIZE)
        self.own: dict[int, bytes] = {page: filled(content) for page, content in touched.items()}
        self.dirty = set(self.own)

    def written(self) -> list[tuple[int, int]]:
        return runs_of(list(self.own))

    def write(self, runs: Sequence[tuple[int, int]], data: memoryview) -> None:
        at = 0
        for first, count in runs:
            for page in range(first, first + count):
                self.own[page] = bytes(data[at : at + PAGE])
                self.dirty.add(page)
                at += PAGE
        assert at == len(data)

    def write_from(
        self, runs: Sequence[tuple[int, int]], data: memoryview, places: Sequence[int]
    ) -> None:
        for (first, count), at in zip(runs, places, strict=True):
            self.write([(first, count)], data[at * PAGE : (at + count) * PAGE])

    def read(self, runs: Sequence[tuple[int, int]], into: memoryview) -> None:
        numbers = [page for first, count in runs for page in range(first, first + count)]
        into[:] = b"".join(self.page(number) for number in numbers)

    def read_in_place(self, runs: Sequence[tuple[int, int]], into: memoryview, start: int) -> None:
        for first, count in runs:
            here = into[(first - start) * PAGE : (first - start + count) * PAGE]
            self.read([(first, count)], here)

    def page(self, number: int) -> bytes:
        return self.own.get(number, self.below[number * PAGE : (number + 1) * PAGE])

    def memory(self) -> Memory:
        found = {page: self.page(page) for page in range(PAGES)}
        assert all(data == data[:1] * PAGE for data in found.values())
        return {page: data[0] for page, data in found.items() if data[0]}


@dataclass
class Sandbox:
    """A sandbox's memory through checkpoints and reverts, without any QEMU."""

    place: SandboxDir
    tracked: bool = False
    """Copy what was written since the last checkpoint, not all that was ever written."""
    ram: FakeRam = field(init=False)
    head: Head = field(init=False)
    model: Memory = field(default_factory=dict)
    models: dict[str, Memory] = field(default_factory=dict)
    last: str | None = None
    """The checkpoint since which ``ram.dirty`` counts."""

    def __post_init__(self) -> None:
        for directory in (self.place.memory, self.place.checkpoints, self.place.layers):
            directory.mkdir(parents=True)
        lock = try_lock(self.place.lock)
        assert lock is not None
        weakref.finalize(self, os.close, lock)  # it runs as long as the test looks at it
        self.ram = FakeRam(None, {})
        self.head = Head(layers=(), top=new_id(), run=new_id())
        self.history.set_head(self.head)

    @property
    def history(self) -> History:
        return History(self.place)

    def write(self, first: int, count: int, content: int) -> None:
        for page in range(first, min(first + count, PAGES)):
            self.ram.write([(page, 1)], memoryview(filled(content)))
            self.model.pop(page, None)
            if content:
                self.model[page] = content

    def checkpoint(self, meanwhile: Sequence[Write] = ()) -> Node:
        """``meanwhile``: what the guest writes while its pages are copied."""
        id_ = new_id()
        head = self.history.head()
        directory = self.place.checkpoints / id_
        with map_os_errors(directory):
            directory.mkdir()
        storage = Storage(self.history, id_, head, run=self.head.run or "", size=SIZE)
        try:
            known = storage.open()
            tracked = self.tracked and self.last is not None and self.last == known
            runs = runs_of(list(self.ram.dirty)) if tracked else self.ram.written()
            if tracked:
                storage.expect_new_pages()
            self.ram.dirty = set()
            storage.add(runs, self.ram)
            for write in meanwhile:
                self.write(*write)
            storage.add(runs_of(list(self.ram.dirty)), self.ram, is_paused=True)
            self.ram.dirty = set()
            stored = storage.finish()
        finally:
            storage.close()
        encoded = PageIndex(SIZE, stored.runs).encode()
        node = Node(
            id=id_,
            tag=id_,
            parent=head.node,
            created=len(self.models),
            note="",
            tier=find_tier("pages"),
            tier_note="",
            auto=False,
            pinned=False,
            pause_s=0,
            bytes_written=stored.written,
            layers=(),
            shape={},
            memory=stored.memory,
            pages=stored.files,
            index=write_file(directory / "pages.index", iter([encoded])),
            devices=File(name="devices", size=0, crcs=()),
            token="t",
            image=stored.image,
            origin=stored.origin,
        )
        self.history.commit(node)
        self.history.set_head(
            Head(
                layers=(),
                top=head.top,
                node=id_,
                run=self.head.run,
                memory=head.memory,
                stored=stored.stored,
            )
        )
        self.last = id_
        self.models[id_] = dict(self.model)
        return node

    def restore(self, node: Node, touched: Memory) -> None:
        path = None if node.memory == BLANK else self.place.memory / node.memory
        self.ram = FakeRam(path, touched)
        restore.check_disk_and_image(self.place, node)
        paged.load_pages(self.place, node, cast(GuestRam, self.ram), nothing)
        self.head = Head(layers=(), top=new_id(), node=node.id, run=new_id(), memory=node.memory)
        self.history.set_head(self.head)
        self.model = dict(self.models[node.id])
        self.last = None

    def remove(self, node: Node) -> None:
        self.history.remove(node)
        del self.models[node.id]

    def check(self) -> None:
        """Every checkpoint gives back what the memory was when it was taken."""
        assert self.ram.memory() == self.model
        self.history.sweep()
        for node in self.history.nodes():
            path = None if node.memory == BLANK else self.place.memory / node.memory
            ram = FakeRam(path, {3: 77})
            restore.check_disk_and_image(self.place, node)
            paged.load_pages(self.place, node, cast(GuestRam, ram), nothing)
            assert ram.memory() == self.models[node.id]
            if node.image is not None:
                assert identify_image(self.place.memory / node.memory) == node.image


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images as soon as a few pages are over them; checksums of a few pages each."""
    monkeypatch.setattr(image, "OVER_MIN", 3 * PAGE)
    monkeypatch.setattr(page_set, "PAGES_AT_ONCE", 5)
    monkeypatch.setattr(page_set, "ZEROS_AT_ONCE", 3)
    monkeypatch.setattr(page_set, "GAP", 2)
    for module in (image, pages, stepwise):
        monkeypatch.setattr(module, "CHUNK", 8 * PAGE)


@pytest.fixture
def place(tmp_path: Path) -> SandboxDir:
    return SandboxDir(tmp_path / "box")


WRITE = (
    st.integers(0, PAGES - 1),
    st.sampled_from([1, 2, 8, 30, PAGES]),
    st.sampled_from([0, 0, 1, 2, 3]),
)
WRITES = st.tuples(st.just("write"), *WRITE)
STEPS = st.lists(
    WRITES
    | WRITES
    | st.tuples(st.just("checkpoint"), st.lists(st.tuples(*WRITE), max_size=2))
    | st.tuples(
        st.just("restore"),
        st.integers(0, 99),
        st.dictionaries(st.integers(0, PAGES - 1), st.integers(0, 9), max_size=2),
    )
    | st.tuples(st.just("remove"), st.integers(0, 99)),
    max_size=25,
)


def share_nothing(_target: int, _source: int) -> bool:
    return False


def share_by_copying(target: int, source: int) -> bool:
    """What FICLONE leaves, made by other means."""
    os.pwrite(target, os.pread(source, SIZE, 0), 0)
    return True


@pytest.mark.parametrize("share", [share_nothing, share_by_copying])
@pytest.mark.parametrize("tracked", [False, True])
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_happens_every_checkpoint_gives_back_its_memory(
    monkeypatch: pytest.MonkeyPatch, share: Any, tracked: bool, steps: list[Any]
) -> None:
    monkeypatch.setattr(image, "share_blocks", share)
    with tempfile.TemporaryDirectory() as directory:
        box = Sandbox(SandboxDir(Path(directory) / "box"), tracked=tracked)
        for what, *values in steps:
            nodes = box.history.nodes()
            if what == "write":
                box.write(*values)
            elif what == "checkpoint":
                box.checkpoint(*values)
            elif what == "restore" and nodes:
                box.restore(nodes[values[0] % len(nodes)], values[1])
            elif what == "remove" and nodes:
                box.remove(nodes[values[0] % len(nodes)])
        box.check()


def test_much_memory_over_the_image_becomes_an_image_that_a_restore_leaves_alone(
    place: SandboxDir,
) -> None:
    box = Sandbox(place)
    box.write(10, 40, 1)
    box.write(70, 4, 2)
    node = box.checkpoint()
    assert node.memory == f"{node.id}.ram"
    found = place.memory / node.memory
    assert found.stat().st_size == SIZE
    assert found.stat().st_blocks * 512 == 44 * PAGE
    assert list(place.memory.iterdir()) == [found]
    box.restore(node, {})
    assert box.ram.own == {}
    box.check()


@pytest.mark.parametrize("content", [3, 0])
def test_loading_much_memory_can_be_broken_off_after_each_small_part(
    place: SandboxDir, content: int
) -> None:
    box = Sandbox(place)
    box.write(0, 60, 1)
    box.checkpoint()
    box.write(10, 20, content)
    node = box.checkpoint()
    for parts in range(3):
        ram = FakeRam(place.memory / node.memory, {})
        left = iter(range(parts))

        def check(left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Stopped

        with pytest.raises(Stopped):
            paged.load_pages(place, node, cast(GuestRam, ram), check)
        assert len(ram.own) <= 5 * parts
    box.check()


def test_the_next_checkpoints_of_the_run_keep_the_image_and_store_what_is_new(
    place: SandboxDir,
) -> None:
    box = Sandbox(place)
    box.write(0, 60, 1)
    first = box.checkpoint()
    box.write(5, 2, 3)
    box.write(80, 1, 4)
    box.write(20, 1, 0)
    second = box.checkpoint()
    assert second.memory == first.memory
    assert second.image == first.image
    assert second.bytes_written == 3 * PAGE
    box.restore(second, {})
    assert sorted(box.ram.own) == [5, 6, 20, 80]
    box.write(6, 1, 5)
    third = box.checkpoint()
    assert (third.memory, third.bytes_written) == (first.memory, PAGE)
    box.check()


def test_after_a_snapshot_of_qemu_s_own_all_pages_are_stored_anew(place: SandboxDir) -> None:
    box = Sandbox(place)
    box.write(0, 60, 1)
    first = box.checkpoint()
    box.write(3, 2, 2)
    own = replace(
        first,
        id=new_id(),
        parent=first.id,
        tier=find_tier("internal"),
        memory=BLANK,
        pages=(),
        index=None,
        devices=None,
        image=None,
        state=File(name="own.state", size=0, crcs=()),
    )
    (place.memory / "own.state").touch()
    (place.checkpoints / own.id).mkdir()
    box.history.commit(own)
    box.history.set_head(replace(box.history.head(), node=own.id, run=None))
    with pytest.raises(HistoryError, match="no pages"):
        load_index(place, own)
    box.write(7, 1, 3)
    second = box.checkpoint()
    assert second.parent == own.id
    box.history.remove(own)
    box.restore(second, {})
    assert box.ram.memory() == box.model
    box.check()


def test_the_images_of_many_branches_cost_no_more_than_what_was_written(
    place: SandboxDir,
) -> None:
    """A checkpoint just below the limit, and from it a hundred branches that each go over it."""
    box = Sandbox(place)
    box.write(0, 40, 1)
    root = box.checkpoint()
    box.write(0, 20, 2)
    near = box.checkpoint()
    assert near.memory == root.memory
    for branch in range(20):
        box.restore(near, {})
        box.write(21, 1, 3 + branch)
        box.write(50, 1, 3 + branch)
        assert box.checkpoint().memory == root.memory
    box.check()


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_all_that_is_written_to_disk_is_proportional_to_the_pages_that_changed(seed: int) -> None:
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        box = Sandbox(SandboxDir(Path(directory) / "box"))
        changed = written = 0
        for _ in range(30):
            for _ in range(dice.randrange(4)):
                count = dice.choice([1, 3, 20])
                box.write(dice.randrange(PAGES), count, dice.randrange(1, 4))
                changed += count
            written += box.checkpoint().bytes_written
            if dice.random() < 0.3:
                box.restore(dice.choice(box.history.nodes()), {})
        assert written <= 5 * changed * PAGE


def test_a_damaged_image_is_refused_by_its_name(place: SandboxDir) -> None:
    box = Sandbox(place)
    box.write(10, 40, 1)
    node = box.checkpoint()
    path = place.memory / node.memory
    with path.open("r+b") as file:
        file.seek(30 * PAGE + 1)
        file.write(b"\xff")
    with pytest.raises(HistoryError, match=path.name):
        box.restore(node, {})
    os.truncate(path, SIZE - PAGE)
    with pytest.raises(HistoryError, match=f"{path.name} is damaged: .* bytes instead of"):
        box.restore(node, {})


def test_a_base_that_is_damaged_makes_no_new_image(place: SandboxDir) -> None:
    box = Sandbox(place)
    box.write(10, 40, 1)
    node = box.checkpoint()
    box.restore(node, {})
    box.write(0, PAGES, 2)
    os.truncate(place.memory / node.memory, SIZE - PAGE)
    with pytest.raises(HistoryError, match=node.memory):
        box.checkpoint()


def test_without_the_space_for_an_image_only_the_new_pages_are_stored(
    place: SandboxDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quicksand.base.errors import DiskSpaceError

    def full(_root: Path, _need: int = 0) -> None:
        raise DiskSpaceError("full")

    monkeypatch.setattr(storing, "check_space", full)
    box = Sandbox(place)
    box.write(10, 40, 1)
    node = box.checkpoint()
    assert (node.memory, node.image) == (BLANK, None)
    assert memory_files(place, node.id)[0].exists()
    box.check()


def test_what_is_written_while_an_image_is_made_lies_over_it(place: SandboxDir) -> None:
    box = Sandbox(place)
    box.write(10, 40, 1)
    node = box.checkpoint(meanwhile=[(12, 2, 2), (20, 1, 0), (80, 1, 3)])
    assert node.memory == f"{node.id}.ram"
    assert [file.size for file in node.pages if file.name.endswith(".pages")] == [3 * PAGE]
    box.restore(node, {})
    assert sorted(box.ram.own) == [12, 13, 20, 80]
    box.write(13, 1, 5)
    box.checkpoint()
    box.check()


def test_pages_that_end_as_they_began_need_no_file(place: SandboxDir) -> None:
    box = Sandbox(place)
    box.write(10, 2, 1)
    box.checkpoint()
    box.write(10, 2, 2)
    node = box.checkpoint(meanwhile=[(10, 2, 1)])
    assert len(node.pages) == 1
    assert not memory_files(place, node.id)[0].exists()
    box.check()


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_where_the_page_cache_cannot_be_left_out_it_is_used(
    place: SandboxDir, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The file system refuses when such a file is opened, or only when it is written to."""
    real_open, real_write = os.open, os.pwrite
    direct: set[int] = set()

    def refusing_open(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_DIRECT:
            if code == errno.ENOTSUP:
                raise OSError(code, "refused")
            direct.add(found := real_open(path, flags & ~os.O_DIRECT, *rest, **named))
            return found
        return real_open(path, flags, *rest, **named)

    def refusing_write(descriptor: int, *rest: Any) -> int:
        if descriptor in direct:
            direct.discard(descriptor)
            raise OSError(code, "refused")
        return real_write(descriptor, *rest)

    monkeypatch.setattr(os, "open", refusing_open)
    monkeypatch.setattr(os, "pwrite", refusing_write)
    box = Sandbox(place)
    box.write(0, 2, 1)
    box.checkpoint()
    box.write(20, 60, 2)
    box.checkpoint()
    box.check()


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 40)), min_size=1, max_size=40),
    st.integers(1, 60),
)
def test_a_sample_is_of_pages_from_all_over(gaps: list[tuple[int, int]], most: int) -> None:
    runs, page = [], 0
    for gap, count in gaps:
        runs.append((page + gap, count))
        page += gap + count
    every = [p for first, n in runs for p in range(first, first + n)]
    found = [p for first, n in storing._spread(runs, most) for p in range(first, first + n)]
    assert len(found) == min(most, len(every))
    assert found == sorted(set(found))
    places = [every.index(page) for page in found]
    assert max(b - a for a, b in pairwise([*places, len(every)])) <= -(-len(every) // most)
