"""The parts of the engine that the service needs, each imported when it is used (PEP 562)."""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from quicksand.base.errors import QuicksandError
    from quicksand.base.faults import note_fault, note_unhandled
    from quicksand.base.paths import paths
    from quicksand.records.fleet_files import look_at_nodes
    from quicksand.records.registry import Registry

    from quicksand_tui.door.engine import Engine, ask_traffic
    from quicksand_tui.door.engine_screen import EngineRecording, EngineScreen
    from quicksand_tui.door.far_hosts import FarHosts
    from quicksand_tui.door.far_sandbox import FarLog, PlaceThere, carry_out_there
    from quicksand_tui.door.log_tail import FileLog
    from quicksand_tui.door.look import Reader
    from quicksand_tui.door.saves_look import SavesReader
    from quicksand_tui.door.ssh_asking import askpass_for
    from quicksand_tui.door.terminal_place import PlaceHere, reach_here
    from quicksand_tui.door.terminals import EngineTerminal
    from quicksand_tui.door.wall_feeds import EngineWall
    from quicksand_tui.verbs.verdicts import Verified
else:
    __getattr__, __dir__ = on_demand()
