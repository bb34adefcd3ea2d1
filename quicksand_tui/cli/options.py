"""Values of options, completion of names, and detach keys: what several commands share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem
from quicksand.base.errors import ConfigError

if TYPE_CHECKING:
    from quicksand.records.nodes import Node


_CONTROL = "ctrl-"


def parse_keys(text: str) -> bytes:
    """Returns the bytes of a sequence of keys such as "ctrl-],d". Raises ConfigError.

    >>> parse_keys("ctrl-],d")
    b'\\x1dd'
    """
    codes = bytearray()
    for key in text.split(","):
        name = key.strip()
        if name.lower().startswith(_CONTROL) and len(name) == len(_CONTROL) + 1:
            code = ord(name[-1].upper()) ^ 0x40
        else:
            code = ord(name) if len(name) == 1 else -1
        if not 0 <= code < 0x80 or (len(name) > 1 and code >= 0x20):
            raise ConfigError(
                f"{key!r} in the keys {text!r} is no key",
                hint='one character or ctrl- and one of a-z @ [ ] \\ ^ _, as in "ctrl-],d"',
            )
        codes.append(code)
    return bytes(codes)


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def complete_sandboxes(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of sandboxes."""
    from quicksand.base.paths import paths
    from quicksand.records.registry import Registry

    entries = Registry(paths()).list()
    return [
        CompletionItem(entry.name, help=entry.status.value)
        for entry in entries
        if entry.name.startswith(incomplete)
    ]


def complete_images(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of images."""
    from quicksand.base.paths import paths
    from quicksand.disks.images.resolve import ImageResolver
    from quicksand.life.image_building import buildable_images

    sources = dict.fromkeys(buildable_images(), "not built yet")
    sources |= {image.name: image.source for image in ImageResolver(paths()).list()}
    return [
        CompletionItem(name, help=source)
        for name, source in sorted(sources.items())
        if name.startswith(incomplete)
    ]


def complete_saves(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of saves."""
    from quicksand.base.paths import paths
    from quicksand.saves.finding import all_stores

    return [
        CompletionItem(save.name, help=save.manifest.note if save.manifest else "damaged")
        for store in all_stores(paths())
        for save in store.list()
        if save.name.startswith(incomplete)
    ]


def complete_trash(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of saves in the trash."""
    from quicksand.base.paths import paths
    from quicksand.saves.census import list_trash
    from quicksand.saves.workspaces import known_stores

    names = {found.save.name for found in list_trash(known_stores(paths()))}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def complete_all_trash(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names and ids of sandboxes and saves in the trash."""
    from quicksand.base.paths import paths
    from quicksand.life.sandbox_trash import SandboxTrash
    from quicksand.records.registry import Registry
    from quicksand.saves.census import list_trash
    from quicksand.saves.workspaces import known_stores

    found = [
        (trashed.name, trashed.id, "sandbox") for trashed in SandboxTrash(Registry(paths())).list()
    ]
    found += [(t.save.name, t.id, "save") for t in list_trash(known_stores(paths()))]
    names = {name: f"{kind} {id_}" for name, id_, kind in found}
    ids = {id_: f"the {kind} {name}" for name, id_, kind in found}
    return [
        CompletionItem(word, help=about)
        for word, about in (*sorted(names.items()), *ids.items())
        if word.startswith(incomplete) and (incomplete or word in names)
    ]


def complete_exported(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of saves, or of sandboxes after ``--tree``."""
    complete = complete_sandboxes if ctx.params.get("tree") else complete_saves
    return complete(ctx, param, incomplete)


def complete_copied(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes files of this host, and sandboxes as ``NAME:``."""
    items = [CompletionItem(incomplete, type="file")]
    if "/" not in incomplete and ":" not in incomplete:
        found = complete_sandboxes(ctx, param, incomplete)
        items += [CompletionItem(f"{item.value}:/") for item in found]
    return items


def complete_tags(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes tags of the checkpoints of the sandbox that the command line names."""
    return [
        CompletionItem(node.tag, help=node.note)
        for node in _checkpoints_of(_named_before(ctx))
        if node.tag.startswith(incomplete)
    ]


def complete_targets(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes as `complete_tags` does, and OTHER:TAG for other sandboxes: first their names, then
    their tags."""
    from quicksand.base.paths import paths
    from quicksand.records.registry import Registry

    found = complete_tags(ctx, param, incomplete)
    other, colon, start = incomplete.partition(":")
    if colon:
        found += [
            CompletionItem(f"{other}:{node.tag}", help=node.note)
            for node in _checkpoints_of(other)
            if node.tag.startswith(start)
        ]
        return found
    mine = _named_before(ctx)
    return found + [
        CompletionItem(f"{entry.name}:", help="its checkpoints")
        for entry in Registry(paths()).list()
        if entry.name.startswith(incomplete)
        and mine not in (None, entry.name, entry.id)
        and _checkpoints_of(entry.id)
    ]


def _named_before(ctx: click.Context) -> str | None:
    """Returns the name of a sandbox that stands before the word that is being completed, if any."""
    # When an option's value is being completed, click has not sorted the arguments yet.
    known = (ctx.params.get("name"), *(ctx.params.get("names") or ctx.args))
    return next(filter(None, known), None)


def _checkpoints_of(name: str | None) -> list[Node]:
    import contextlib

    from quicksand.base.errors import QuicksandError
    from quicksand.base.paths import paths
    from quicksand.records.registry import Registry
    from quicksand.snapshots.history import history_of

    with contextlib.suppress(QuicksandError, OSError):
        if name is not None:
            registry = Registry(paths())
            return history_of(registry, registry.find(name).id).nodes()
    return []


def parse_env(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Returns environment variables for the guest by their names. A name without a value takes the
    value that it has here, if any. Raises click.BadParameter."""
    found = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise click.BadParameter(f"{text!r} does not begin with a variable's name")
        if equals:
            found[name] = value
        elif name in os.environ:
            found[name] = os.environ[name]
    return found
