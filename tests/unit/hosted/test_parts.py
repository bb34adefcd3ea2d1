"""A sandbox of another machine can do what one of this can, or says that it cannot, and why."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from quicksand import Mount, RemoteHost, Sandbox
from quicksand.errors import ConfigError, NoDisplayError, StateError, UnknownOptionError
from quicksand.hosted.codec import Known
from quicksand.hosted.life import FarLife
from quicksand.hosted.remote_parts import FarParts
from quicksand.life.parts import LocalParts, Parts
from quicksand.records.config import SandboxConfig

from tests.each import each

HOST = "ssh://nobody@nowhere.invalid"
NOT_THERE = ("vnc_socket", "logs", "save_on_stop")
"""What a sandbox of another machine refuses."""

PARTS = sorted(
    (name for name in vars(Parts) if not name.startswith("_")), key=lambda name: name != "life"
)


@pytest.fixture
def there() -> Sandbox:
    return Sandbox(image="debian", name="web", host=HOST)


@each("part", PARTS)
def test_every_part_is_there(part: str) -> None:
    life = FarLife(RemoteHost(HOST), Known(id="", name="", config=SandboxConfig("debian")), {})
    assert hasattr(FarParts(life), part)
    assert hasattr(LocalParts, part) or part in inspect.getsource(LocalParts)


def delegated() -> list[str]:
    return sorted(
        name
        for name, method in vars(Sandbox).items()
        if not name.startswith("_")
        and not isinstance(method, staticmethod | classmethod)
        and callable(getattr(method, "fget", method))
        and inspect.unwrap(getattr(method, "fget", method)).__module__ != Sandbox.__module__
    )


@each("name", delegated())
async def test_what_a_sandbox_delegates_its_far_part_has(there: Sandbox, name: str) -> None:
    """With the same parameters, where they are not passed on as they come."""
    method = inspect.getattr_static(Sandbox, name)
    part = _part_with(there, name)
    if isinstance(method, property):
        if name not in NOT_THERE:
            getattr(there, name)
        return
    here = inspect.signature(method)
    theirs = inspect.signature(getattr(type(part), name))
    if any(one.kind is one.VAR_KEYWORD for one in theirs.parameters.values()):
        return
    assert [*here.parameters] == [*theirs.parameters]
    assert inspect.iscoroutinefunction(method) == inspect.iscoroutinefunction(
        getattr(type(part), name)
    )


def _part_with(sandbox: Sandbox, name: str) -> Any:
    parts: Any = sandbox._parts
    found = [part for part in (getattr(parts, one) for one in PARTS) if hasattr(type(part), name)]
    assert found, f"no part has {name}"
    return found[0]


@each("name", NOT_THERE)
def test_what_is_not_there_says_what_to_do(there: Sandbox, name: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {"save_on_stop": ("x", None)}
    with pytest.raises(StateError, match="another machine") as refused:
        found = getattr(there, name)
        found(*arguments.get(name, ()))
    assert refused.value.hint


async def test_what_cannot_be_meant_for_another_machine_is_refused() -> None:
    for wrong in (
        {"mounts": [Mount("data", "/mnt/data")]},
        {"mounts": ["./data:/mnt/data"]},
        {"mounts": ["~/data:/mnt/data"]},
        {"workspace": "saves"},
        {"base_dir": "images"},
        {"memory_dir": "memory"},
    ):
        with pytest.raises(ConfigError, match="whole path"):
            Sandbox(image="debian", host=HOST, **wrong)
    with pytest.raises(ConfigError, match="whole path"):
        Sandbox(image="./disk.qcow2", host=HOST)
    Sandbox(image="debian", host=HOST, mounts=[Mount("/data", "/mnt/data")])


def test_options_are_checked_before_anything_is_asked() -> None:
    with pytest.raises(UnknownOptionError, match="memory"):
        Sandbox(image="debian", host=HOST, memroy="2G")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="cpus"):
        Sandbox(image="debian", host=HOST, cpus=0)
    with pytest.raises(ConfigError, match="no name"):
        Sandbox(image="debian", host=HOST, name="a b")


@each("address", ["ssh://-oProxyCommand=x", "nobody-knows", "", 5])
def test_an_address_that_makes_no_sense_is_refused(address: Any) -> None:
    with pytest.raises(ConfigError):
        Sandbox(image="debian", host=address)


@each("grace", [-1, 1e9, True, "30"])
def test_a_grace_that_makes_no_sense_is_refused(grace: Any) -> None:
    with pytest.raises(ConfigError, match="grace"):
        RemoteHost(HOST, grace=grace)


def test_a_machine_has_the_name_that_the_config_gives_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[hosts]\nbox = "ssh://me@box.example.org:2222"\n')
    monkeypatch.setenv("QUICKSAND_CONFIG", str(config))
    assert RemoteHost("box").address == "ssh://me@box.example.org:2222"
    with pytest.raises(ConfigError, match="no host 'bax'"):
        RemoteHost("bax")
    config.write_text("[hosts\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        RemoteHost("box")


def test_this_machine_is_no_other_one() -> None:
    assert isinstance(Sandbox(image="debian", host="local")._parts, LocalParts)
    assert isinstance(Sandbox(image="debian", host=None)._parts, LocalParts)


async def test_a_sandbox_that_never_started_there_needs_no_connection(there: Sandbox) -> None:
    assert (there.id, there.name, there.is_running) == ("", "web", False)
    await there.stop()
    there.close()
    with pytest.raises(StateError, match="not running"):
        there.detach()


async def test_the_screen_of_a_sandbox_that_never_started_needs_no_connection_either(
    there: Sandbox, tmp_path: Path
) -> None:
    with_screen = Sandbox(image="debian", name="web", host=HOST, enable_display=True)
    for sandbox, error in ((there, NoDisplayError), (with_screen, StateError)):
        for look in (sandbox.display(), sandbox.record(tmp_path / "x.gif")):
            with pytest.raises(error):
                async with look:
                    pass
