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


class Specified(Protocol):
    async def screenshot(self, path: str | Path) -> Any: ...
    async def type_text(self, text: str) -> Any: ...
    async def press_key(self, *keys: str) -> Any: ...
    async def mouse_move(self, x: int, y: int) -> Any: ...
    async def mouse_click(self, button: str = "left", *, double: bool = False) -> Any: ...
    async def query_display_size(self) -> tuple[int, int]: ...
    async def query_mouse_position(self) -> tuple[int, int]: ...


METHODS = [method for method in vars(Specified).values() if inspect.iscoroutinefunction(method)]


@pytest.mark.parametrize("wanted", METHODS, ids=lambda method: method.__name__)
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
    assert all(
        more.kind is more.KEYWORD_ONLY and more.default is not more.empty
        for more in parameters.values()
    )


def test_there_is_a_display_only_where_one_is_asked_for() -> None:
    assert SandboxConfig(image="debian").enable_display is False
    assert SandboxConfig(image="debian", enable_display=True).enable_display is True
    assert isinstance(inspect.getattr_static(Sandbox, "vnc_port"), property)


@pytest.mark.parametrize("system", ["Ubuntu", "Alpine", "Debian"])
def test_desktops_have_classes_of_their_own(system: str) -> None:
    kind = getattr(quicksand, f"{system}DesktopSandbox")
    config = kind(memory="1G").config
    assert (config.image, config.enable_display) == (f"{system.lower()}-desktop", True)
    assert kind(enable_display=False).config.enable_display is False
