"""Finds verbs by their names. Each is a literal in one module of this package, which is imported
when the verb is asked for: a command needs only its own. Other packages' verbs (`extending`) enter
by entry points, which are looked for when a name is none of ours, or all are asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from quicksand_tui.verbs.verb import Kind, Verb, family, flag, option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quicksand_tui.verbs.verb import AnyVerb

# fmt: off
SECTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "Run and use": (
        ("launching", "run"), ("commands_only", "exec shell"), ("ports", "forward"),
        ("commands_only", "ssh ssh-config code ssh-gateway"), ("commands_only", "cp"),
        ("mounts", "mount unmount"),
    ),
    "See and drive the screen": (("commands_only", "screenshot record type key mouse vnc"),),
    "Start, stop, remove": (
        ("launching", "start clone"), ("halting", "stop kill pause resume"),
        ("trashing", "rm trash restore"),
    ),
    "Keep and revert": (
        ("checkpoints", "checkpoint revert undo tree diff"), ("saves", "save"),
        ("bundles", "snapshot export import"),
    ),
    "Show": (
        ("commands_only", "ps"), ("commands_only", "view"), ("commands_only", "logs events stats"),
        ("mounts", "mounts"), ("commands_only", "images"), ("packages", "install uninstall"),
        ("saves verdicts", "saves"), ("commands_only", "du"),
    ),
    "Other machines": (("commands_only", "hosts serve"),),
    "This host": (("commands_only", "info config doctor setup clean demo completions"),),
}
"""The sections of the help, and in each the modules of our verbs, in their order."""

GROUP = "quicksand_tui.verbs"
"""The group of entry points by which other packages' verbs enter."""

APP_OPTIONS = (
    option("--host", Kind.TEXT, "HOST",
           "Do COMMAND, or open the app, on this machine: ssh://[USER@]HOST[:PORT], or a name."),
    option("--theme", Kind.TEXT, "NAME", "Use these colours for this run, or auto."),
    flag("--ascii", "Draw with ASCII only."),
    flag("--read-only", "Change nothing, and open no shell."),
    option("--screenshot", Kind.FILE, "FILE",
           "Write a picture (.svg, .png) instead; needs no terminal."),
    option("--screen", Kind.TEXT, "NAME", "Picture this screen, or NAME:SANDBOX."),
    option("--size", Kind.TEXT, "WxH", "Picture it at this size, in columns and rows.  "
           "[default: 120x36]"),
)
"""The options in front of a command, or without one: all but --host are of the app."""
# fmt: on

_MODULES = {
    name: tuple(f"quicksand_tui.verbs.{module}" for module in modules.split())
    for section in SECTIONS.values()
    for modules, names in section
    for name in names.split()
}


def is_verb(name: str) -> bool:
    """Whether there is a verb, not a part, of this name."""
    return name in _MODULES or name in _entered()


def find_verb(name: str) -> AnyVerb:
    """Finds a verb by its name, such as "checkpoint rm" for a part. Raises LookupError."""
    first = name.partition(" ")[0]
    return _family(first, _MODULES.get(first) or (_entered()[first],))[name]


@cache
def _entered() -> Mapping[str, str]:
    """Returns the modules of other packages' verbs, by name."""
    from importlib.metadata import entry_points  # noqa: PLC0415

    return {one.name: one.module for one in entry_points(group=GROUP) if one.name not in _MODULES}


@cache
def _family(name: str, modules: tuple[str, ...]) -> dict[str, AnyVerb]:
    return family(name, [value for one in modules for value in vars(import_module(one)).values()])


@cache
def sections() -> Mapping[str, Sequence[AnyVerb]]:
    """Returns all verbs by the sections of the help, in its order."""
    return arrange(_entered())


def arrange(entered: Mapping[str, str]) -> Mapping[str, Sequence[AnyVerb]]:
    """Returns the same with other packages' verbs as given: their modules by name."""
    found = {
        title: [find_verb(name) for _, names in section for name in names.split()]
        for title, section in SECTIONS.items()
    }
    for name, module in entered.items():
        try:
            verb = _family(name, (module,))[name]
        except ImportError as error:  # one broken package leaves the others their help
            verb = Verb(name, summary=f"(cannot be loaded: {error})")
        _place(verb, [*found.values()])
    return found


def _place(verb: AnyVerb, found: Sequence[list[AnyVerb]]) -> None:
    """Puts another package's verb behind the one that it follows."""
    for section in found:
        names = [one.name for one in section]
        if verb.after in names:
            section.insert(names.index(verb.after) + 1, verb)
            return
    found[-1].append(verb)


@cache
def all_verbs() -> tuple[AnyVerb, ...]:
    """Returns all verbs, in the order of the help."""
    return tuple(verb for section in sections().values() for verb in section)
