"""What errors say: what is wrong, and not the whole of it if that is long."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand import errors as public
from quicksand.base import errors
from quicksand.base.errors import ConfigError, DiskSpaceError, QuicksandError
from quicksand.base.remedies import FREE_SPACE, MESSAGE_MAX, WORD_MAX, Remedy, Words, shorten
from quicksand.records.config import SandboxConfig, check_name
from quicksand.records.machine_options import check_disk_size, parse_size

from tests.each import each

LONG = "x" * 100_000


@each(
    "options",
    [
        {"image": "debian\0" + LONG},
        {"image": "debian", "memory": LONG},
        {"image": "debian", "disk_size": LONG},
        {"image": "debian", "arch": LONG},
        {"image": "debian", "network_mode": LONG},
        {"image": "debian", "accel": LONG},
        {"image": "debian", "port_forwards": LONG},
        {"image": "debian", "port_forwards": [LONG]},
        {"image": "debian", "boot_timeout": LONG},
        {"image": "debian", LONG: 1},
        {"image": "debian", "port_forwards": [{"host": 1, "guest": " y" * 50_000}]},
    ],
    ids=lambda options: str(list(options))[:40],
)
def test_a_long_value_does_not_come_back_whole(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="characters left out") as caught:
        SandboxConfig.parse(options)
    assert len(str(caught.value)) < MESSAGE_MAX + 100
    assert len(caught.value.hint) < MESSAGE_MAX + 100


def test_what_is_wrong_stands_at_both_ends() -> None:
    with pytest.raises(ConfigError) as caught:
        check_name(LONG)
    assert str(caught.value).endswith("is no name for a sandbox")
    with pytest.raises(ConfigError) as caught:
        parse_size(LONG, what="memory")
    assert str(caught.value).startswith("memory 'xxx")
    assert str(caught.value).endswith("is not a size")


@given(st.text(max_size=3 * MESSAGE_MAX))
def test_messages_have_an_end_and_short_ones_are_as_they_were(text: str) -> None:
    short = shorten(text)
    assert len(short) <= MESSAGE_MAX + 100
    if len(text) <= WORD_MAX:
        assert short == text


KEYWORDS: dict[str, Any] = {
    "hint": Words(Remedy("start", name="web"), " starts it"), "log": "the end", "code": "exists",
    "errno": 17, "parameter": "path", "lacks": (("host", "memory"),), "exit_code": 3,
    "stdout": "out", "stderr": "err", "signal": 9, "timed_out": True, "output": "the last line",
}  # fmt: skip


def names() -> set[str]:
    """The errors under their public names."""
    return set(vars(public)["__all__"]) - {"AgentCode"}


def kinds(kind: type[QuicksandError]) -> list[type[QuicksandError]]:
    return [kind, *(below for one in kind.__subclasses__() for below in kinds(one))]


def test_every_error_is_the_same_after_it_was_copied_or_sent_to_another_process() -> None:
    found = {kind.__name__: kind for kind in kinds(QuicksandError)}
    assert {*names()} <= {*found}
    for kind in found.values():
        taken = inspect.signature(kind.__init__).parameters
        if "message" not in taken:  # of another distribution
            continue
        given = {name: value for name, value in KEYWORDS.items() if name in taken}
        error = kind("what", **given)
        error.add_note("seen at the end")
        for again in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
            assert type(again) is kind
            assert (str(again), again.args, again.hint) == (str(error), error.args, error.hint)
            assert {**vars(again)} == {**vars(error)}, kind
            assert all(getattr(again, name) == getattr(error, name) for name in given), kind


def fail_in_another_process() -> None:
    raise errors.CommandFailedError("it failed", exit_code=3, output="the last line")


def test_a_failed_command_does_not_break_a_pool_of_processes() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        failed = pool.submit(fail_in_another_process).exception(60)
        assert isinstance(failed, errors.CommandFailedError)
        assert (failed.exit_code, str(failed)) == (3, "it failed\nthe last line")
        assert pool.submit(len, "abc").result(60) == 3


def test_a_full_disk_says_what_to_free() -> None:
    assert "trash" in DiskSpaceError("no space left for /x").hint
    assert DiskSpaceError("no space left for /x").advice == FREE_SPACE
    assert DiskSpaceError("no space", hint="other").hint == "other"


@each("size", [1, 1023])
def test_a_disk_below_its_base_is_an_error(size: int) -> None:
    with pytest.raises(ConfigError, match=r"too small: .*the image 'debian'") as caught:
        check_disk_size(size, 1024, "the image 'debian'")
    assert caught.value.hint
    check_disk_size(0, 1024, "x")
    check_disk_size(1024, 1024, "x")


@each(
    "kind", ["StateError", "HostError", "ImageError", "MachineError", "AgentError", "QemuNotFound"]
)
def test_what_the_published_engine_raises_as_a_runtime_error_is_one(kind: str) -> None:
    assert issubclass(getattr(public, kind), RuntimeError)


def test_all_of_them_are_public() -> None:
    ours = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and kind.__module__ == errors.__name__ and name[0] != "_"
    }
    assert ours == names()
