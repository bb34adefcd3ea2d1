"""Claims on a machine's memory: of several clients none gets what another has."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from quicksand.base.capacity import OVERHEAD
from quicksand.base.errors import ConfigError, MemoryBudgetError, StateError
from quicksand.base.paths import Paths
from quicksand.records.config import SandboxConfig
from quicksand.records.memory_budget import BUDGET, Claims, budget, check_budget, cpus_for_sandboxes
from quicksand.records.registry import Registry

from tests.conftest import blank_record
from tests.unit.fleet.fakes import room_for

GUEST = 128 * 1024**2
CLAIM = """
import sys
from quicksand.base.errors import MemoryBudgetError
from quicksand.base.paths import paths
from quicksand.records.memory_budget import Claims
try:
    held = Claims(paths()).take(sys.argv[1], int(sys.argv[2]))
    print("got", flush=True)
    sys.stdin.read()
except MemoryBudgetError:
    print("full", flush=True)
"""


@pytest.fixture(autouse=True)
def two_guests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has room for two guests."""
    monkeypatch.setenv(BUDGET, str(room_for(2, memory_bytes=GUEST)))


def id_of(number: int) -> str:
    return f"{number:032x}"


def test_what_is_claimed_is_no_longer_free_until_it_is_given_back(places: Paths) -> None:
    claims = Claims(places)
    held = [claims.take(id_of(number), GUEST) for number in range(2)]
    with pytest.raises(MemoryBudgetError, match="0 MiB are left"):
        claims.take(id_of(3), GUEST)
    for one in held:
        claims.drop(one)
    claims.drop(claims.take(id_of(3), GUEST))
    assert [path.name for path in claims.place.iterdir()] == [".lock"]


def test_a_claim_is_made_once(places: Paths) -> None:
    claims = Claims(places)
    held = claims.take(id_of(1), GUEST)
    with pytest.raises(StateError, match="already"):
        claims.take(id_of(1), GUEST)
    claims.drop(held)


def test_of_processes_that_race_only_those_get_it_for_whom_there_is_room(places: Paths) -> None:
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM, id_of(number), str(GUEST)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(5)
    ]
    told = [one.stdout.readline().strip() for one in racing if one.stdout is not None]
    assert sorted(told) == ["full"] * 3 + ["got"] * 2
    # Killed, as by the kernel: what they had is free again.
    for one in racing:
        one.kill()
        one.communicate()
    claims = Claims(places)
    assert claims.look()[1] == {}
    claims.drop(claims.take(id_of(9), 2 * GUEST + OVERHEAD))


def test_a_sandbox_that_is_there_is_counted_once(places: Paths) -> None:
    claims, registry = Claims(places), Registry(places)
    held = claims.take(id_of(1), GUEST)
    claims.bind(id_of(1), "0" * 12)
    assert claims.look()[1] == {id_of(1): GUEST + OVERHEAD}
    lock = registry.create(blank_record(SandboxConfig.parse({"image": "debian", "memory": "128M"})))
    use, found = claims.look()
    assert (use.taken, found) == (GUEST + OVERHEAD, {id_of(1): 0})
    claims.drop(held)
    assert claims.look()[0].taken == GUEST + OVERHEAD
    os.close(lock)


def test_no_other_claim_is_bound(places: Paths) -> None:
    claims = Claims(places)
    for id_ in (id_of(1), "../../fleet", ""):
        claims.bind(id_, "0" * 12)
    assert not claims.place.exists()


async def test_a_start_beyond_the_budget_is_refused(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(places)
    one = blank_record(SandboxConfig.parse({"image": "debian", "memory": "128M"}))
    lock = await asyncio.to_thread(registry.create, one)
    check_budget(registry, one)  # itself does not count
    large = replace(
        one,
        id="1" * 12,
        name="large",
        config=SandboxConfig.parse({"image": "debian", "memory": "512M"}),
    )
    with pytest.raises(MemoryBudgetError, match=f"that {BUDGET} allows, 224 MiB are left"):
        check_budget(registry, large)
    monkeypatch.delenv(BUDGET)
    check_budget(registry, large)  # nothing was given to it: only what is available counts
    os.close(lock)


def test_a_budget_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BUDGET, "much")
    with pytest.raises(ConfigError, match="'much'"):
        budget()
    monkeypatch.setenv("QUICKSAND_CPU_BUDGET", "-1")
    with pytest.raises(ConfigError, match="'-1'"):
        cpus_for_sandboxes()
    monkeypatch.delenv(BUDGET)
    monkeypatch.delenv("QUICKSAND_CPU_BUDGET")
    assert 0 < budget() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert cpus_for_sandboxes() == os.cpu_count()
