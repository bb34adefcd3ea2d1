"""Small bundles with something changed somewhere: what comes out is what went in, or an error."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand.base.errors import QuicksandError
from quicksand.saves.save_manifest import check_save

from tests.conftest import examples
from tests.unit.saves.bundles.making import Home, contents, digests, places_in


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with a save, and bundles of it: thin, full, packed."""
    root = tmp_path_factory.mktemp("fuzz")
    here = Home.make(root / "here")
    here.add_image()
    here.add_save()
    here.export(root / "thin")
    here.export(root / "full", full=True)
    here.export(root / "packed", full=True, compress=True)
    yield root
    shutil.rmtree(root)


def attempt(ground: Path, data: bytes) -> bool:
    """Import into an empty home; whether it worked. Then it is the save, else nothing is there."""
    here = Home(places_in(ground / "here"))
    before = contents(ground)
    with tempfile.TemporaryDirectory(dir=ground) as place:
        there = Home.make(Path(place) / "there")
        image = there.add_image(content=b"an older kernel")
        empty = contents(there.paths.data)
        try:
            done = there.import_(data)
        except QuicksandError as error:
            assert str(error)
            assert contents(Path(place)) == {
                f"there/data/{name}": found for name, found in empty.items()
            } | {"there": "directory", "there/data": "directory"}
            return False
        assert there.images.get("debian") == image
        save, original = there.saves.find(done.name), here.saves.find("env")
        assert check_save(save.root) == original.require()
        assert digests(save) == digests(original)
        added = set(contents(there.paths.data)) - set(empty)
        assert {name.split("/")[0] for name in added} <= {"saves", "images"}
        assert [s.name for s in there.saves.list()] == ["env"]
    assert contents(ground) == before
    return True


def test_the_bundles_are_good(ground: Path) -> None:
    assert attempt(ground, (ground / "full").read_bytes())
    assert attempt(ground, (ground / "packed").read_bytes())
    assert not attempt(ground, (ground / "thin").read_bytes())


@pytest.mark.parametrize("kind", ["full", "packed"])
@settings(max_examples=examples(150))
@given(data=st.data())
def test_flipped_bytes(ground: Path, kind: str, data: st.DataObject) -> None:
    bundle = bytearray((ground / kind).read_bytes())
    # Layers are mostly zeros: what is at the beginnings of blocks is worth more.
    anywhere = st.integers(0, len(bundle) - 1)
    near = st.integers(0, len(bundle) // 512 - 1).flatmap(
        lambda block: st.integers(block * 512, block * 512 + 511)
    )
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.one_of(anywhere, near, st.integers(0, min(6000, len(bundle) - 1))))
        bundle[at] ^= data.draw(st.integers(1, 255))
    attempt(ground, bytes(bundle))


@pytest.mark.parametrize("kind", ["full", "packed"])
@settings(max_examples=examples(60))
@given(data=st.data())
def test_truncations(ground: Path, kind: str, data: st.DataObject) -> None:
    bundle = (ground / kind).read_bytes()
    cut = data.draw(st.integers(0, len(bundle) - 1))
    assert not attempt(ground, bundle[:cut])


@settings(max_examples=examples(80))
@given(data=st.data())
def test_pieces_that_change_places_or_come_twice(ground: Path, data: st.DataObject) -> None:
    bundle = (ground / "full").read_bytes()
    blocks = [bundle[at : at + 512] for at in range(0, len(bundle), 512)]
    begin = data.draw(st.integers(0, len(blocks)))
    end = data.draw(st.integers(begin, min(len(blocks), begin + 40)))
    to = data.draw(st.integers(0, len(blocks)))
    piece = blocks[begin:end]
    if data.draw(st.booleans()):
        del blocks[begin:end]
    blocks[to:to] = piece
    attempt(ground, b"".join(blocks))
