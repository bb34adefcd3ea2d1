"""The files of fleets in the data directory.

::

    <data>/fleet/fleet.json     the fleet that is up: its back end, its machines
    <data>/fleet/machine        32 hex digits: which machine, or node of one, this is to fleets
    <data>/fleet/claims/        memory that clients of other machines have claimed (claims.py)
    <data>/fleet/waiting/       sandboxes that wait for a place (quicksand_fleet)
    <data>/fleet/places/        which place, as Ray keeps it, which sandbox has (likewise)
    <data>/fleet/kept/          sandboxes that are restarted elsewhere (likewise)
    <data>/fleet/exports.json   the copies of their exported saves (likewise)
    <data>/fleet/nodes/<id>/    the data directory of a local node; in it, `home` is its home
    <runtime>-fleet/<id>/       its runtime directory
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from quicksand.base.errors import PathError
from quicksand.base.files import map_os_errors
from quicksand.base.paths import Paths, make_private_dir
from quicksand.base.regular import create, read_word

NODE_HOME = "home"
"""The name of the home of a node's programs, in its data directory."""
HEX32 = re.compile(r"[0-9a-f]{32}")


def fleet_dir(paths: Paths) -> Path:
    """Return the directory of all this; it need not exist."""
    return paths.data / "fleet"


def fleet_file(paths: Paths) -> Path:
    """The record of the fleet that is up."""
    return fleet_dir(paths) / "fleet.json"


def claims_dir(paths: Paths) -> Path:
    """The directory of claims on this machine's memory."""
    return fleet_dir(paths) / "claims"


def nodes_dir(paths: Paths) -> Path:
    """The directory of the local nodes."""
    return fleet_dir(paths) / "nodes"


def nodes_runtime(paths: Paths) -> Path:
    """The directory of the local nodes' runtime directories: beside ours, where paths of sockets
    are as short."""
    return paths.runtime.with_name(f"{paths.runtime.name}-fleet")


def is_known_to_fleets(paths: Paths) -> bool:
    """Whether a fleet has asked this machine for its capacity."""
    return _machine_file(paths).exists()


def _machine_file(paths: Paths) -> Path:
    return fleet_dir(paths) / "machine"


def machine_id(paths: Paths) -> str:
    """Return this machine's id: 32 hex digits that are made when they are first needed. Raises
    PathError."""
    make_private_dir(fleet_dir(paths))
    place = _machine_file(paths)
    with map_os_errors(place):
        if not place.exists():
            temporary = place.with_name(f".machine.{os.urandom(4).hex()}")
            with create(temporary) as file:
                file.write(os.urandom(16).hex().encode("ascii"))
            with contextlib.suppress(FileExistsError):
                os.link(temporary, place)  # one of several programs makes it
            temporary.unlink()
        found = read_word(place).strip()
    if not HEX32.fullmatch(found):
        raise PathError(f"{place} is damaged", hint="remove it; another one is made")
    return found
