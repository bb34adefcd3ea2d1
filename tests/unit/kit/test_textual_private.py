"""What is private of Textual is used in one file only, and each name is still there."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import quicksand_driver
import quicksand_panes
import textual
from quicksand_driver import textual_compositor, textual_private
from textual._compositor import Compositor
from textual._styles_cache import StylesCache
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

import quicksand_tui
from tests.each import each

PRIVATE = (textual_private, textual_compositor)

CANARIES = [
    (App, "_driver", "keys for guests are not passed by, and the mouse is not given back"),
    (App, "_background_screens", "pictures of the app lack the screens below a dialog"),
    (App, "_batch_count", "the app draws over a shell that has the terminal"),
    (App, "_clipboard", "what is too long for a terminal cannot be pasted in the app"),
    (App, "_handle_exception", "a fault ends the app with a traceback and all local variables"),
    (App, "_fatal_error", "a fault ends the app with a traceback and all local variables"),
    (Widget, "_bindings", "a line to type in takes keys in another order than they were typed"),
    (Widget, "_forward_event", "keys held back on the wall are lost if it leads nowhere"),
    (Input, "_on_key", "a line to type in takes keys in another order than they were typed"),
    (Screen, "_compositor", "a new shell stays without a guest: it is not told its size"),
    (Compositor, "_full_map", "a new shell stays without a guest: it is not told its size"),
    (Compositor, "reflow", "a new shell stays without a guest: it is not told its size"),
    (Compositor, "render_update", "a slow line is queued for seconds"),
    (Compositor, "_dirty_regions", "what changed while a slow line was busy is not drawn"),
    (Screen, "_compositor_refresh", "what changed while a slow line was busy is not drawn"),
    (Screen, "_dirty_widgets", "what changed while a slow line was busy is not drawn"),
    (Compositor, "update_widgets", "what changed while a slow line was busy is not drawn"),
    (Compositor, "render_strips", "pictures of the app cannot be taken"),
    (StylesCache, "get_inner_outer", "the lines of a thousand widgets that are gone are kept"),
    (LinuxDriver, "_file", "a slow terminal ends the app"),
    (LinuxDriver, "_get_terminal_size", "a terminal that tells no size ends the app"),
    (LinuxDriver, "_size", "the first frame is laid out for another size than the terminal has"),
    (LinuxDriver, "_sigtstp_application", "ctrl+z can hang the app"),
    (LinuxDriver, "_sigcont_application", "fg can hang the app"),
    (LinuxDriver, "_must_signal_resume", "after SIGSTOP the screen stays empty"),
    (LinuxDriver, "_auto_restart", "after SIGSTOP the screen stays empty"),
    (LinuxDriver, "_writer_thread", "the app writes to a terminal that it has given back"),
    (LinuxDriver, "_mouse", "the mouse cannot be given to the terminal"),
    (LinuxDriver, "_mouse_pixels", "the mouse cannot be given to the terminal"),
    (LinuxDriver, "_enable_mouse_support", "the mouse cannot be taken back"),
    (LinuxDriver, "_enable_mouse_pixels", "the mouse cannot be taken back"),
    (LinuxDriver, "_disable_mouse_support", "the mouse cannot be given to the terminal"),
    (LinuxDriver, "_loop", "ctrl+z can hang the app"),
    (LinuxDriver, "_debug", "no key is read"),
    (LinuxDriver, "run_input_thread", "keys for guests are not passed by"),
    (LinuxDriver, "attrs_before", "the terminal is not left as it was"),
    (XTermParser, "feed", "no key is read"),
    (XTermParser, "tick", "a lone Escape is not read"),
]


@cache
def names_of(owner: type) -> frozenset[str]:
    """What a class and its bases have, as attributes or set on themselves."""
    found = set(dir(owner))
    for base in owner.__mro__:
        if base.__module__.startswith("textual"):
            found |= set(re.findall(r"self\.(\w+)(?:: [^=\n]+)? =", inspect.getsource(base)))
    return frozenset(found)


@each(("owner", "name", "breaks"), CANARIES)
def test_textual_still_has_it(owner: type, name: str, breaks: str) -> None:
    assert name in names_of(owner), f"{owner.__name__}.{name} is gone: {breaks}"


def test_every_private_name_has_its_canary() -> None:
    used = set()
    for node in (n for one in PRIVATE for n in ast.walk(ast.parse(inspect.getsource(one)))):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            used.add(node.attr)
        elif isinstance(node, ast.FunctionDef):
            used.add(node.name)
    known = {name for owner, _, _ in CANARIES for name in names_of(owner)}
    assert {name for name in used & known if is_private(name)} <= {name for _, name, _ in CANARIES}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def classes() -> Iterator[type]:
    """Ours that are Textual's."""
    for found in pkgutil.walk_packages(quicksand_tui.__path__, "quicksand_tui."):
        if found.name in ("quicksand_tui.__main__", *(one.__name__ for one in PRIVATE)):
            continue
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            if not inspect.isclass(value) or value.__module__ != found.name:
                continue
            if any(base.__module__.startswith("textual") for base in value.__mro__):
                yield value


ALLOWED = {
    ("_Line", "_on_key"),
    ("LineInput", "_on_key"),  # named in a canary; there is no public way to take a key first
}


def test_nothing_of_ours_shadows_or_uses_a_private_name_of_textual() -> None:
    found = []
    for owner in classes():
        theirs: set[str] = set()
        for base in owner.__mro__:
            if base.__module__.startswith("textual"):
                theirs |= names_of(base)
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(owner)))
        used = set(own_names(tree))
        used |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        used |= {n.name for n in ast.walk(tree) if isinstance(n, ast.AsyncFunctionDef)}
        found += [(owner.__name__, name) for name in used & theirs if is_private(name)]
    assert set(found) <= ALLOWED


def own_names(tree: ast.AST) -> Iterator[str]:
    """Attributes of ``self``."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                yield name


def test_private_modules_of_textual_are_imported_in_these_files_only() -> None:
    allowed = {Path(str(one.__file__)) for one in PRIVATE}
    for root in (quicksand_tui, quicksand_driver, quicksand_panes):
        for path in Path(str(root.__file__)).parent.rglob("*.py"):
            if path in allowed:
                continue
            assert not re.search(r"(from|import) textual\._", path.read_text()), path


def test_these_canaries_are_of_this_textual() -> None:
    assert textual.__version__.startswith("8."), "look through the private names"
    assert issubclass(LinuxDriver, object) and issubclass(Screen, MessagePump)
