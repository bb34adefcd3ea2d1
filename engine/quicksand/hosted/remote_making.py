"""Makes the parts of a `Sandbox` of another machine: checks here whatever can be checked here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quicksand.base.errors import ConfigError
from quicksand.base.progress import Progress
from quicksand.hosted.hosted_sandbox import Known
from quicksand.hosted.life import FarLife
from quicksand.hosted.remote_host import RemoteHost, find_host
from quicksand.hosted.remote_parts import FarParts, require_absolute
from quicksand.life.parts import Parts
from quicksand.records.config import SandboxConfig

RELATIVE = ("./", "../")
"""Beginnings of paths that are meant to be on this machine."""


def make_there(host: str | RemoteHost, own: Mapping[str, Any], options: Mapping[str, Any]) -> Parts:
    """Return the parts of a sandbox that `start` makes there. ``own`` are the keywords of `Sandbox`
    that are not options of the machine. Raises ConfigError."""
    known, opening = describe(own, options)
    progress: Progress | None = own["progress_callback"]
    life = FarLife(find_host(host), known, opening, progress=progress)
    return FarParts(life).as_parts()


def describe(
    own: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Known, dict[str, dict[str, Any]]]:
    """Return the local knowledge of a sandbox before it is made on another machine, and how it is
    made there. Raises ConfigError."""
    image = own["image"]
    config = SandboxConfig.parse({**options, "image": image})
    for mount in config.mounts:
        if written := getattr(mount, "was_relative", ""):
            require_absolute(written, "the directory to be mounted")
    for name in ("workspace", "base_dir"):
        if own[name] is not None:
            require_absolute(own[name], f"{name}:")
    if config.memory_dir is not None:
        require_absolute(str(options["memory_dir"]), "memory_dir:")
    if str(image).startswith(RELATIVE):
        raise ConfigError(
            f"{image!r:.300} would be a file of the other machine: write its whole path there",
            hint="RemoteHost.send_save() sends a save to it",
        )
    given = {name: value for name, value in config.to_json().items() if name in options}
    sent = {name: str(value) if isinstance(value, Path) else value for name, value in own.items()}
    sent.pop("progress_callback")
    if sent["build"] is None:
        sent["build"] = sys.stderr.isatty()
    known = Known(id="", name=own["name"] or "", config=config)
    return known, {"make": {**sent, **given}}


def open_there(
    host: str | RemoteHost,
    id_or_name: str,
    *,
    must_run: bool = True,
    to_end_it: bool = False,
    progress_callback: Progress | None = None,
) -> Parts:
    """Return the parts of an existing sandbox, which the first call looks for."""
    life = life_of(
        find_host(host),
        id_or_name,
        must_run=must_run,
        to_end_it=to_end_it,
        progress=progress_callback,
    )
    return FarParts(life).as_parts()


def life_of(
    host: RemoteHost,
    id_or_name: str,
    *,
    must_run: bool = False,
    to_end_it: bool = False,
    progress: Progress | None = None,
) -> FarLife:
    """Return the life of an existing sandbox, which the first call looks for."""
    known = Known(id="", name=id_or_name, config=SandboxConfig(image="unknown"))
    opening = {"name": id_or_name, "must_run": must_run, "to_end_it": to_end_it}
    return FarLife(host, known, opening, progress=progress)
