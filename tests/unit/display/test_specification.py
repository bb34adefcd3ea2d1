"""The names, parameters and defaults that the specification and the published packages have for
screen, keyboard and pointer. What it has more takes nothing away."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
import quicksand
from quicksand import Sandbox, SandboxConfig
from quicksand.base.errors import ConfigError
from quicksand.desktop import Desktop
from quicksand.display.hands import place_on

from tests.each import each


class Specified(Protocol):
    async def screenshot(self, path: str | Path) -> Any: ...
    async def type_text(self, text: str) -> Any: ...
    async def press_key(self, *keys: str) -> Any: ...
    async def mouse_move(self, x: int, y: int) -> Any: ...
    async def mouse_click(self, button: str = "left", *, double: bool = False) -> Any: ...
    async def query_display_size(self) -> tuple[int, int]: ...
    async def query_mouse_position(self) -> tuple[int, int]: ...


METHODS = [method for method in vars(Specified).values() if inspect.iscoroutinefunction(method)]


@each("wanted", METHODS, ids=lambda method: method.__name__)
def test_the_methods_take_what_it_says(wanted: Callable[..., Any]) -> None:
    found = getattr(Sandbox, wanted.__name__)
    assert inspect.iscoroutinefunction(found)
    signature, specified = inspect.signature(found), inspect.signature(wanted)
    assert specified.return_annotation in (signature.return_annotation, "Any")
    parameters = dict(signature.parameters)
    for name, parameter in specified.parameters.items():
        ours = parameters.pop(name)
        assert ours.kind == parameter.kind
        if name != "self":
            assert parameter.annotation in ours.annotation
        if parameter.default is not parameter.empty:
            assert ours.default == parameter.default
    assert all(more.default is not more.empty for more in parameters.values())


class Clicked:
    """Notes where is clicked, on a screen of 1000x500 pixels."""

    def __init__(self) -> None:
        self.clicks: list[tuple[str, int, tuple[int, int] | None]] = []

    async def place_of(self, x: int, y: int) -> tuple[int, int]:
        return place_on((1000, 500), x, y)

    async def click(self, button: str, count: int, place: tuple[int, int] | None) -> None:
        self.clicks.append((button, count, place))


@each(
    ("words", "keywords", "expected"),
    [
        ((), {}, ("left", 1, None)),
        (("right",), {"double": True}, ("right", 2, None)),
        ((), {"button": "middle"}, ("middle", 1, None)),
        ((400, 300), {}, ("left", 1, (400, 300))),
        (("right", 400, 300), {}, ("right", 1, (400, 300))),
        ((), {"x": 400, "y": 300, "button": "side"}, ("side", 1, (400, 300))),
        ((999, 499), {"pixels": True}, ("left", 1, (32751, 32735))),
        ((0, 0), {"pixels": True}, ("left", 1, (16, 32))),
    ],
)
async def test_a_click_is_where_the_pointer_is_or_at_a_place(
    words: tuple[Any, ...], keywords: dict[str, Any], expected: object
) -> None:
    display: Any = Clicked()
    desktop = Desktop.__new__(Desktop)
    vars(desktop)["_display"] = display
    await desktop.mouse_click(*words, **keywords)
    assert display.clicks == [expected]


@each(
    ("words", "keywords"),
    [((400,), {}), ((), {"x": 1}), ((), {"pixels": True}), ((1, 2, 3), {}), ((1, 2), {"x": 1})],
)
async def test_half_a_place_is_refused(words: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    desktop = Desktop.__new__(Desktop)
    vars(desktop)["_display"] = Clicked()
    with pytest.raises(ConfigError, match="a place has x and y"):
        await desktop.mouse_click(*words, **keywords)


def test_there_is_a_display_only_where_one_is_asked_for() -> None:
    assert SandboxConfig(image="debian").enable_display is False
    assert SandboxConfig(image="debian", enable_display=True).enable_display is True
    assert isinstance(inspect.getattr_static(Sandbox, "vnc_port"), property)


@each("system", ["Ubuntu", "Alpine", "Debian"])
def test_desktops_have_classes_of_their_own(system: str) -> None:
    kind = getattr(quicksand, f"{system}DesktopSandbox")
    config = kind(memory="1G").config
    assert (config.image, config.enable_display) == (f"{system.lower()}-desktop", True)
    assert kind(enable_display=False).config.enable_display is False
