"""What the service needs of the engine, each imported when it is used (PEP 562)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quicksand.base.errors import QuicksandError
    from quicksand.base.paths import paths
    from quicksand.records.registry import Registry

    from quicksand_tui.door.desktop import EngineScreen
    from quicksand_tui.door.engine import Engine, ask_traffic
    from quicksand_tui.door.far_guest import PlaceThere
    from quicksand_tui.door.far_hosts import FarHosts
    from quicksand_tui.door.far_log import FarLog
    from quicksand_tui.door.far_sandbox import open_there
    from quicksand_tui.door.far_screen import ScreenThere
    from quicksand_tui.door.fleet_look import FleetLook
    from quicksand_tui.door.logs import FileLog
    from quicksand_tui.door.look import Reader
    from quicksand_tui.door.places import PlaceHere
    from quicksand_tui.door.reach import reach_here
    from quicksand_tui.door.recordings import EngineRecording
    from quicksand_tui.door.saves_look import SavesReader
    from quicksand_tui.door.terminals import EngineTerminal
    from quicksand_tui.door.traffic import TrafficWatch, with_traffic
    from quicksand_tui.door.wall import EngineWall

__all__ = [
    "Engine",
    "EngineRecording",
    "EngineScreen",
    "EngineTerminal",
    "EngineWall",
    "FarHosts",
    "FarLog",
    "FileLog",
    "FleetLook",
    "PlaceHere",
    "PlaceThere",
    "QuicksandError",
    "Reader",
    "Registry",
    "SavesReader",
    "ScreenThere",
    "TrafficWatch",
    "ask_traffic",
    "open_there",
    "paths",
    "reach_here",
    "with_traffic",
]

_HOMES = {
    "quicksand.base.errors": ("QuicksandError",),
    "quicksand.base.paths": ("paths",),
    "quicksand.records.registry": ("Registry",),
    "quicksand_tui.door.desktop": ("EngineScreen",),
    "quicksand_tui.door.engine": (
        "Engine",
        "ask_traffic",
    ),
    "quicksand_tui.door.far_guest": ("PlaceThere",),
    "quicksand_tui.door.far_hosts": ("FarHosts",),
    "quicksand_tui.door.ssh_questions": ("askpass_for",),
    "quicksand_tui.door.far_log": ("FarLog",),
    "quicksand_tui.door.far_sandbox": ("open_there",),
    "quicksand_tui.door.far_screen": ("ScreenThere",),
    "quicksand_tui.door.fleet_look": ("FleetLook",),
    "quicksand_tui.door.logs": ("FileLog",),
    "quicksand_tui.door.look": ("Reader",),
    "quicksand_tui.door.places": ("PlaceHere",),
    "quicksand_tui.door.reach": ("reach_here",),
    "quicksand_tui.door.recordings": ("EngineRecording",),
    "quicksand_tui.door.saves_look": ("SavesReader",),
    "quicksand_tui.door.terminals": ("EngineTerminal",),
    "quicksand_tui.door.traffic": (
        "TrafficWatch",
        "with_traffic",
    ),
    "quicksand_tui.door.wall": ("EngineWall",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
