"""What packages beside the engine add to it is there, and the engine does without."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest
import quicksand
from quicksand.base import entering
from quicksand.base.paths import Paths
from quicksand.errors import ConfigError
from quicksand.records.fleet_files import (
    NodesView,
    fleet_dir,
    look_at_nodes,
    lost_nodes,
    nodes_of,
    useless_nodes,
)
from quicksand.remote.node import parse_address

WITHOUT = """
import importlib.metadata
importlib.metadata.entry_points = lambda **_: ()
from quicksand import *
import quicksand
print(hasattr(quicksand, "Fleet"), "Fleet" in quicksand.__all__, Sandbox.__name__)
"""


def test_public_names_of_other_packages_are_names_of_quicksand() -> None:
    assert quicksand.Fleet.__module__ == "quicksand_fleet.fleet"
    public = import_module("quicksand").__all__
    assert {"Fleet", "Restart", "BatchResult"} <= {*public} & {*dir(quicksand)}


def test_without_them_the_engine_has_the_others() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, check=True)
    assert ran.stdout.decode() == "False False Sandbox\n"


def test_without_the_package_there_are_no_fleets_and_no_nodes(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    entering.entered.cache_clear()
    try:
        with pytest.raises(ConfigError, match="no installed package has fleets"):
            quicksand.Sandbox(image="debian", fleet=True)
        with pytest.raises(ConfigError, match="no local node 'node-1'"):
            parse_address("node://node-1")
        assert not [*nodes_of(places), *lost_nodes(places), *useless_nodes(places)]
        fleet_dir(places).mkdir(parents=True)
        assert look_at_nodes(None) == NodesView()
    finally:
        entering.entered.cache_clear()
