"""Which CRC-32 is used: the fastest that there is and that computes the same values."""

from __future__ import annotations

import importlib
import random
import sys
import zlib
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from quicksand.base.checksum import FASTER, find_crc32

from tests.each import each

Crc = Callable[..., int]


@pytest.fixture(autouse=True)
def none_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FASTER:
        monkeypatch.setitem(sys.modules, name, None)


def install(monkeypatch: pytest.MonkeyPatch, name: str, crc32: Crc | None = None) -> Crc:
    """Let there be a module whose function is one of its own, with zlib's values."""
    found = crc32 or (lambda data, value=0: zlib.crc32(data, value))
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(crc32=found))
    return found


def test_without_any_of_them_it_is_zlib_s() -> None:
    assert find_crc32() is zlib.crc32


@each("name", FASTER)
def test_one_that_is_installed_is_used(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found = install(monkeypatch, name)
    assert find_crc32() is found


def test_the_first_is_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [install(monkeypatch, name) for name in FASTER]
    assert find_crc32() is found[0]


def test_one_with_other_values_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CRC-32C, say: whatever it is called, files must have the same checksums everywhere."""
    first, second = FASTER
    install(monkeypatch, first, lambda data, value=0: zlib.crc32(data, value) ^ 1)
    assert find_crc32() is zlib.crc32
    found = install(monkeypatch, second)
    assert find_crc32() is found


@each("name", FASTER)
def test_the_real_ones_have_zlib_s_values(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delitem(sys.modules, name)
    pytest.importorskip(name)
    assert find_crc32() is importlib.import_module(name).crc32
    dice = random.Random(1)
    for size in (0, 1, 7, 63, 64, 65, 4095, 4096, 1 << 20, (1 << 20) + 13):
        data = dice.randbytes(size)
        start = dice.getrandbits(32)
        assert find_crc32()(data) == zlib.crc32(data)
        assert find_crc32()(memoryview(data), start) == zlib.crc32(data, start)
