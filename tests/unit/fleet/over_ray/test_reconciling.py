"""What a machine does when Ray's books and its disk differ."""

from hypothesis import given
from hypothesis import strategies as st
from quicksand_fleet.over_ray.desk import Place
from quicksand_fleet.over_ray.places import Kept
from quicksand_fleet.over_ray.reconciling import Repair, plan_repair

from tests.unit.fleet.over_ray.fakes import ONE

NOW = 1000.0
IDS = st.sets(st.sampled_from([f"{number:032x}" for number in range(6)]))


def place(id_: str, *, expires_at: int = 2000) -> Place:
    return Place(id=id_, machine_id=ONE, memory_bytes=1, expires_at=expires_at)


def kept(id_: str) -> Kept:
    return Kept(id=id_, sandbox="a" * 12, memory_bytes=1)


def test_a_place_that_no_sandbox_took_in_time_is_given_back() -> None:
    places = [place("a", expires_at=1000), place("b", expires_at=1001)]
    assert plan_repair(places, [], (), NOW).give_back == ("a",)


def test_a_place_lasts_as_long_as_its_sandbox_runs_whatever_its_expiry() -> None:
    repair = plan_repair([place("a", expires_at=1)], [kept("a")], {"a"}, NOW)
    assert repair == Repair()


def test_place_and_record_of_a_sandbox_that_has_ended_go() -> None:
    repair = plan_repair([place("a")], [kept("a")], (), NOW)
    assert (repair.give_back, repair.drop) == (("a",), ("a",))


def test_a_new_head_learns_of_sandboxes_that_run() -> None:
    assert plan_repair([], [kept("a")], {"a"}, NOW).take == (kept("a"),)


@given(IDS, IDS, IDS)
def test_after_a_repair_both_agree(placed: set[str], bound: set[str], running: set[str]) -> None:
    live = running & bound
    repair = plan_repair([place(one) for one in placed], [kept(one) for one in bound], live, NOW)
    then = (placed - {*repair.give_back}) | {one.id for one in repair.take}
    assert bound - {*repair.drop} == live
    assert then == live | (placed - bound)  # those that wait for a sandbox stay until they expire
    again = plan_repair([place(one) for one in then], [kept(one) for one in live], live, NOW)
    assert again == Repair()
