"""Deciding whether a name means a save or an image, and which options of a save are accepted.

The order is: a path; the saves that this user has made, in workspaces and in the data directory;
the images; last the other saves in workspaces, which may have been copied from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quicksand.base.error_text import printable
from quicksand.base.errors import SaveNotFoundError
from quicksand.base.paths import Paths, expand
from quicksand.disks.images.resolve import ImageResolver, is_file
from quicksand.records.config import SandboxConfig
from quicksand.records.machine_options import MachineOption, options_of
from quicksand.saves.finding import find_named, find_save
from quicksand.saves.ownership import is_own
from quicksand.saves.portable import find_portable
from quicksand.saves.save_manifest import OVERLAYS, Save, SaveManifest
from quicksand.saves.save_places import PLAIN, WORKSPACE

ASKED_MAX = 100
"""Characters of one option of a save in a message."""


class SaveWarning(UserWarning):
    """Options of a save were left out, or a name could mean both a save and an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """The meaning of a name."""

    save: Save | None = None
    """The save; None if the name can only mean an image."""
    is_own: bool = True
    """Whether this user has made the save."""
    passed_over: Save | None = None
    """A save of the same name that was not chosen because an image has the name too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InheritedOptions:
    """The config of a sandbox that starts with a save."""

    config: SandboxConfig
    left_out: tuple[str, ...] = ()
    """The options of the save that were not accepted, in words."""


def find_meaning(name: str, paths: Paths, workspace: Path | None = None) -> Meaning:
    """Resolve ``name``; ``workspace`` is also searched for saves. Raises SaveError for a save that
    cannot be used."""
    if is_file(name):
        return _meaning_of_path(name, paths)
    offered: Save | None = None
    for save, own in find_named(name, paths, workspace=workspace):
        if save.manifest is None and not own and not (save.root / OVERLAYS).exists():
            continue  # it is no save
        if own:
            save.require()
            return Meaning(save=save)
        offered = offered or save
    if offered is None:
        return Meaning()
    if ImageResolver(paths).has(name):
        return Meaning(passed_over=offered)
    offered.require()
    return Meaning(save=offered, is_own=False)


def _meaning_of_path(name: str, paths: Paths) -> Meaning:
    save = find_portable(expand(name).absolute())
    if save is None:
        try:
            save = find_save(name, paths)
        except SaveNotFoundError:
            return Meaning()
        if save.manifest is None and not (save.root / OVERLAYS).exists():
            return Meaning()  # an image's directory has a manifest too
    save.require()
    return Meaning(save=save, is_own=is_own(save.root, paths))


def inherit(save: Save, options: Mapping[str, Any], *, trusted: bool) -> InheritedOptions:
    """The save's config, overridden by ``options``. Its own options that reach beyond the guest are
    accepted only if it is ``trusted``; its mounts never are. Raises ConfigError, SaveError.
    """
    manifest = save.require()
    own = replace(manifest.config, mounts=())
    asked = dict(_asked(manifest))
    if trusted:
        asked = {key: said for key, said in asked.items() if key == "mounts"}
    left_out = tuple(said for key, said in asked.items() if key not in options)
    if not trusted:
        own = confine(own)
    # The disk needs the image on which it was made.
    config = SandboxConfig.parse({**own.to_json(), **options, "image": own.image})
    return InheritedOptions(config=config, left_out=left_out)


def confine(config: SandboxConfig) -> SandboxConfig:
    """``config`` without options that reach beyond the guest. A network mode narrower than "full"
    is kept."""
    return replace(config, **{option.keyword: option.default for option, _ in _reaching(config)})


def left_out_of(config: SandboxConfig) -> tuple[str, ...]:
    """The options that `confine` removes, in words."""
    return tuple(said for _, said in _reaching(config))


def _asked(manifest: SaveManifest) -> Iterator[tuple[str, str]]:
    for option, said in _reaching(manifest.config):
        yield option.keyword, said
    if mounts := manifest.other_config.get("mounts"):
        yield "mounts", _clip(f"mounts {mounts}")


def _reaching(config: SandboxConfig) -> Iterator[tuple[MachineOption, str]]:
    """The options of ``config`` that reach beyond the guest: (option, words for it)."""
    for option in options_of(type(config)):
        if said := option.reaches(getattr(config, option.keyword)):
            yield option, _clip(said)


def _clip(text: str) -> str:
    text = printable(text)
    return text if len(text) <= ASKED_MAX else f"{text[:ASKED_MAX]}…"


def explain(meaning: Meaning, left_out: tuple[str, ...]) -> tuple[str, ...]:
    """Notes for the user who gave the name, one line each."""
    if meaning.passed_over is not None:
        save = meaning.passed_over
        return (
            f"{save.name!r} is the image; the save of that name, which was not made here, is "
            f"{_address(save)}",
        )
    if meaning.save is None:
        return ()
    save = meaning.save
    if meaning.is_own:
        told = f"{save.name!r} starts without what it was made with: {'; '.join(left_out)}"
        return (f"{told}; `-v HOST:GUEST` (mounts=) mounts it again",) if left_out else ()
    where = f"{save.name!r} is the save in {save.root.parent}, which was not made here"
    if not left_out:
        return (where,)
    return (
        f"{where}: what it asks for is left out ({'; '.join(left_out)}); give it yourself, or "
        "--trust (in Python trust=True) takes it over",
    )


def _address(save: Save) -> str:
    """Return the words by which a command can name a save whose plain name means something else."""
    here = Path.cwd()
    near = (here, here / WORKSPACE / PLAIN)
    return f"./{save.name}" if save.root.parent in near else str(save.root)
