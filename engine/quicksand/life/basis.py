"""The basis of a new sandbox: an image, a save, or a bundle with one of them, and the options that
come with it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quicksand.base.error_text import host_takes
from quicksand.base.errors import ConfigError
from quicksand.base.paths import Paths, expand
from quicksand.base.threads import in_stoppable_thread
from quicksand.life import machinery
from quicksand.records.config import SandboxConfig

if TYPE_CHECKING:
    from types import FrameType

    from quicksand.base.progress import Progress
    from quicksand.saves.bundle.unpacked import BundleHead
    from quicksand.saves.save_manifest import Save


class Basis(NamedTuple):
    """The meaning of the name of an image or a save."""

    config: SandboxConfig
    source: Save | None = None
    """The save whose disk the sandbox starts with."""
    bundle: BundleHead | None = None
    """The bundle that has to be unpacked first."""
    trusted: bool = False
    """Whether all options of the save are taken over."""
    notices: tuple[str, ...] = ()
    """Warnings about the save, in words."""
    is_surprising: bool = False
    """Whether options were left out, or the name could have meant a save as well."""

    def warn_caller(self) -> None:
        """Give the first caller that is not of this package a SaveWarning, if there is a reason."""
        if self.is_surprising:
            level = 2
            frame: FrameType | None = sys._getframe(1)
            while frame and frame.f_globals.get("__name__", "").partition(".")[0] == "quicksand":
                level, frame = level + 1, frame.f_back
            warnings.warn(self.notices[0], machinery.SaveWarning, stacklevel=level)


def workspace_of(place: str | Path) -> Path:
    """The directory of a workspace. Raises ConfigError if no directory can have that name."""
    path = Path(place).absolute()
    if not host_takes(str(path)):
        raise ConfigError(f"no workspace can be at {str(place)!r}")
    return path


def find_basis(
    image: str, options: Mapping[str, Any], paths: Paths, *, workspace: Path | None, trust: bool
) -> Basis:
    """Find the meaning of ``image``. ``options`` override those of a save, which is searched for in
    ``workspace``. Blocks for I/O. Raises ConfigError for a bad value, SaveError for a save or a
    bundle that cannot be used, ImageNotFound or PathError for a bundle that cannot be read."""
    is_text = isinstance(image, str) and host_takes(image)
    if is_text and machinery.is_bundle(image):
        return _of_bundle(image, options, paths, trust=trust)
    if not is_text or not machinery.may_be_save(image, paths, workspace):
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


def _of_bundle(image: str, options: Mapping[str, Any], paths: Paths, *, trust: bool) -> Basis:
    """Find the meaning of a bundle; only its manifest is read here. A bundle comes from anywhere,
    so the options of a save in it are left out unless the user trusts its maker."""
    head = machinery.read_head(expand(image).absolute())
    machinery.require_startable(head)
    save = machinery.save_in(head)
    if save is None:
        usual = machinery.known_options(head.machine)
        config = SandboxConfig.parse({**usual, "image": image, **options})
        return Basis(config=config, bundle=head, trusted=trust)
    inherited = machinery.inherit(save, options, trusted=trust)
    told = "; ".join(inherited.left_out)
    notice = (
        f"{head.path.name} was made elsewhere: what it asks for is left out ({told}); give it "
        "yourself, or --trust (in Python trust=True) takes it over"
    )
    return Basis(
        config=inherited.config,
        bundle=head,
        trusted=trust,
        notices=(notice,) if told else (),
        is_surprising=bool(told),
    )


def _plain(image: str, options: Mapping[str, Any], paths: Paths) -> SandboxConfig:
    # The config refuses a value that is no name.
    arch = options.get("arch")
    is_text = isinstance(image, str) and host_takes(image)
    usual = machinery.suggested_options(image, paths, arch) if is_text else {}
    return SandboxConfig.parse({**usual, "image": image, **options})


async def unpack_basis(
    head: BundleHead, config: SandboxConfig, paths: Paths, progress: Progress | None
) -> tuple[SandboxConfig, Save | None]:
    """Unpack a bundle, unless that was done before; return the config with the image in it, and the
    save if it holds one. Raises BundleError, SaveError, ImageError, HostError."""

    def say(stage: str, done: int, total: int) -> None:
        if progress is not None:
            stage = f"unpacking {head.path.name}" if total else stage
            progress(stage, min(99, done * 100 // total) if total else 0, 100)

    found = await in_stoppable_thread(lambda stop: machinery.unpack(head, paths, say, stop))
    if found.save is not None:
        return config, found.save
    return replace(config, image=found.image), None
