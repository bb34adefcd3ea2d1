"""Arguments of the wrong type are refused before anything happens."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from quicksand import ConfigError, Sandbox, Snapshot, saves
from quicksand.base.arguments import checked, checked_methods
from quicksand.base.paths import Paths
from quicksand.guest.connections import GuestConnection, GuestDatagrams
from quicksand.guest.execution import Command
from quicksand.guest.shell import Shell


class Thing:
    """A class that the table does not have."""


@checked_methods
class Owner:
    def __init__(self, name: str = "") -> None:
        self.calls: list[Any] = []

    def take(
        self,
        text: str = "",
        flag: bool = False,
        *,
        whole: int = 0,
        real: float = 0.0,
        maybe: str | None = None,
        place: str | Path = "",
        words: str | Sequence[str] = "",
        names: Sequence[str | None] | None = None,
        env: Mapping[str, str] | None = None,
        call: Callable[[str], Any] | None = None,
        thing: Thing | str | None = None,
    ) -> None:
        self.calls.append(text)

    async def wait(self, seconds: float) -> float:
        return seconds

    @staticmethod
    def alone(count: int) -> int:
        return count

    @classmethod
    def made(cls, name: str) -> Owner:
        return cls(name)


@pytest.mark.parametrize(
    "named",
    [
        *({"text": None}, {"text": b"bytes"}, {"flag": 1}, {"flag": None}, {"whole": True}),
        *({"whole": 1.0}, {"real": "1"}, {"real": False}, {"maybe": 3}, {"place": b"x"}),
        *({"words": ["a", 3]}, {"words": b"x"}, {"names": "ab"}, {"names": [3]}),
        *({"env": {"a": 1}}, {"env": [("a", "b")]}, {"call": "f"}),
    ],
)
def test_a_value_of_no_declared_type_is_refused(named: dict[str, Any]) -> None:
    owner = Owner()
    with pytest.raises(ConfigError, match=f"^{next(iter(named))} must be "):
        owner.take(**named)
    assert not owner.calls


@pytest.mark.parametrize(
    "named",
    [
        *({"text": "a"}, {"flag": True}, {"whole": -3}, {"real": 1}, {"real": 1.5}),
        *({"maybe": None}, {"maybe": "a"}, {"place": Path("a")}, {"place": "a"}),
        *({"words": ["a"]}, {"words": ("a", "b")}, {"names": ["a", None]}, {"names": None}),
        *({"env": {"a": "b"}}, {"env": None}, {"call": print}, {"call": None}),
    ],
)
def test_what_is_declared_is_taken(named: dict[str, Any]) -> None:
    owner = Owner()
    owner.take(**named)
    assert owner.calls


def test_arguments_without_names_are_checked_too_and_classes_are_not() -> None:
    owner = Owner()
    with pytest.raises(ConfigError, match="flag must be True or False, not 'yes'"):
        owner.take("a", "yes")  # type: ignore[arg-type]
    owner.take(thing=3)  # type: ignore[arg-type]


async def test_coroutines_static_and_class_methods_and_constructors_stay_what_they_are() -> None:
    assert inspect.iscoroutinefunction(Owner.wait)
    assert await Owner().wait(1) == 1
    with pytest.raises(ConfigError, match="seconds must be a number"):
        await Owner().wait("1")  # type: ignore[arg-type]
    assert Owner.alone(3) == 3
    with pytest.raises(ConfigError, match="count must be a whole number"):
        Owner.alone("3")  # type: ignore[arg-type]
    assert isinstance(Owner.made("a"), Owner)
    with pytest.raises(ConfigError, match="name must be a string"):
        Owner.made(None)  # type: ignore[arg-type]


def test_missing_and_unknown_arguments_are_what_they_always_were() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'count'"):
        Owner.alone()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'many'"):
        Owner().take(many=3)  # type: ignore[call-arg]


def test_a_value_that_cannot_be_shown_is_told_by_its_type() -> None:
    @checked
    def take(text: str) -> None: ...

    with pytest.raises(ConfigError, match="text must be a string, not of the type int"):
        take(10**5000)  # type: ignore[arg-type]


async def chunks() -> AsyncIterator[bytes]:
    yield b""


async def test_public_functions_refuse_what_is_of_another_type(places: Paths) -> None:
    sandbox: Any = Sandbox(image="debian", name="never-started")
    calls: tuple[Callable[[], Any], ...] = (
        *(lambda: sandbox.revert(None), lambda: sandbox.checkpoint(note=None)),
        *(lambda: sandbox.save(None), lambda: sandbox.fork(count=1, at=0.5)),
        *(lambda: sandbox.clone(None), lambda: sandbox.files.list(3)),
        *(lambda: sandbox.pin_checkpoint("a", "no"), lambda: sandbox.stop(grace="1")),
        *(
            lambda: sandbox.files.write_extents("/f", chunks),
            lambda: sandbox.files.write("/f", None),
        ),
    )
    for call in calls:
        with pytest.raises(ConfigError, match=" must be "):
            await call()
    finders: list[Callable[[Any], Any]] = [Sandbox.open, Sandbox.attach, Sandbox.restore]
    readers: list[Callable[[Any], Any]] = [Sandbox.validate_save, Snapshot.load, saves.delete]
    for function in (*finders, *readers):
        with pytest.raises(ConfigError, match=" must be "):
            function(None)
    with pytest.raises(ConfigError, match="progress_callback must be a function"):
        Sandbox(image="debian", progress_callback="loud")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is neither a mount nor a path of the guest"):
        await sandbox.unmount(8080)


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        *((Command, "write"), (Command, "feed"), (Shell, "write"), (Shell, "resize")),
        *((GuestConnection, "write"), (GuestDatagrams, "send")),
    ],
)
async def test_what_is_open_in_a_guest_refuses_them_too(owner: type, method: str) -> None:
    with pytest.raises(ConfigError, match=" must be "):
        await getattr(owner, method)(object(), 3.5)


def test_the_last_bytes_of_a_log_may_be_more_than_there_are(places: Paths) -> None:
    sandbox = Sandbox(image="debian", name="never-started")
    assert sandbox.logs(limit=2**70) == ""
    with pytest.raises(ConfigError, match="limit must be 0 or more bytes, not -1"):
        sandbox.logs(limit=-1)


def test_further_arguments_are_those_of_the_parameter_that_takes_them() -> None:
    @checked
    def press(first: str, *keys: str, hold: float = 0.0) -> tuple[str, ...]:
        return (first, *keys)

    assert press("ctrl", "alt", "t", hold=0.5) == ("ctrl", "alt", "t")
    with pytest.raises(ConfigError, match="keys must be a string, not 3"):
        press("ctrl", "alt", 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="hold must be a number, not 't'"):
        press("ctrl", hold="t")  # type: ignore[arg-type]
