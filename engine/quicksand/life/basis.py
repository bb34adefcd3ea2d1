"""What a new sandbox is made from: an image or a save, and the options that it takes from there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quicksand.base.paths import Paths
from quicksand.life import machinery
from quicksand.records.config import SandboxConfig

if TYPE_CHECKING:
    from quicksand.saves.store import Save


class Basis(NamedTuple):
    """The meaning of the name of an image or a save."""

    config: SandboxConfig
    source: Save | None = None
    """The save whose disk the sandbox starts with."""
    trusted: bool = False
    """Whether all options of the save are taken over."""
    notices: tuple[str, ...] = ()
    """Warnings about the save, in words."""
    is_surprising: bool = False
    """Whether options were left out, or the name could have meant a save as well."""


def find_basis(
    image: str, options: Mapping[str, Any], paths: Paths, *, workspace: Path | None, trust: bool
) -> Basis:
    """The meaning of ``image``; ``options`` go before those of a save, and ``workspace`` is
    searched for it. Blocks for I/O. Raises ConfigError for a bad value, SaveError for a save that
    cannot be used."""
    if not isinstance(image, str) or not machinery.may_be_save(image, paths, workspace):
        return Basis(config=_plain(image, options, paths), trusted=trust)

    meaning = machinery.find_meaning(image, paths, workspace)
    trusted = trust or meaning.is_own
    left_out: tuple[str, ...] = ()
    if meaning.save is None:
        config = _plain(image, options, paths)
    else:
        inherited = machinery.inherit(meaning.save, options, trusted=trusted)
        config, left_out = inherited.config, inherited.left_out
    return Basis(
        config=config,
        source=meaning.save,
        trusted=trusted,
        notices=machinery.explain(meaning, left_out),
        is_surprising=bool(left_out) or meaning.passed_over is not None,
    )


def _plain(image: str, options: Mapping[str, Any], paths: Paths) -> SandboxConfig:
    # The config refuses a value that is no name at all.
    usual = machinery.suggested_options(image, paths) if isinstance(image, str) else {}
    return SandboxConfig.parse({**usual, "image": image, **options})
