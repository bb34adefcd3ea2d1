"""Tests have the user's images, and cannot change them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage

from tests.conftest import fresh_places, images_of
from tests.unit.saves.making import publish_image


@pytest.fixture
def users(places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A user with an image "debian"."""
    found = replace(places, data=tmp_path / "user")
    with monkeypatch.context() as patch:
        patch.setenv("QUICKSAND_DATA_DIR", str(found.data))
        publish_image(found)
    return found


@contextlib.contextmanager
def in_a_test(users: Paths) -> Iterator[tuple[Paths, StoredImage]]:
    """The places of a test of that user, with the image as it is found there; in the end the user's
    store has to be what it was, file by file."""
    before = {path: path.stat().st_mtime_ns for path in users.images.rglob("*")}
    with fresh_places(users) as found:
        image = ImageStore(found.images).get("debian")
        assert image is not None and not image.errors
        yield found, image
    assert {path: path.stat().st_mtime_ns for path in users.images.rglob("*")} == before


def test_what_a_test_publishes_as_an_image_of_the_user_stays_in_the_test(users: Paths) -> None:
    with in_a_test(users) as (places, before):
        made = publish_image(places, "of the test")
        assert made.digest != before.digest
        now = ImageStore(places.images).get("debian")
        assert now is not None and now.digest == made.digest
    mine = ImageStore(users.images).get("debian")
    assert mine is not None and mine.digest == before.digest


def test_what_a_test_publishes_under_another_name_stays_in_the_test(users: Paths) -> None:
    with in_a_test(users) as (places, _):
        publish_image(places, name="other")
    assert ImageStore(users.images).get("other") is None


def test_what_a_test_removes_is_still_there_for_the_user(users: Paths) -> None:
    # A version by a link is not taken for one of the store's own.
    with in_a_test(users) as (places, image), contextlib.suppress(QuicksandError):
        ImageStore(places.images).withdraw(image)
    assert ImageStore(users.images).get("debian") is not None


def test_the_end_of_all_tests_would_see_it(users: Paths) -> None:
    before = images_of(users.images)
    publish_image(users, "of a test")
    assert not images_of(users.images).items() >= before.items()
