"""Standing orders for spares, and the records of spares: what is kept, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, StateError
from quicksand.base.files import write_json
from quicksand.base.limits import SPARES_MAX
from quicksand.base.paths import Paths
from quicksand.records.config import Accelerator, SandboxConfig
from quicksand.records.port_forwards import PortForward
from quicksand.records.registry import Registry
from quicksand.warm.spares.orders import Orders, digest_of
from quicksand.warm.spares.spare import Spare, has_spares, list_spares

from tests.conftest import blank_record
from tests.each import each
from tests.unit.records.making import RUN

DEBIAN = SandboxConfig(image="debian")
LARGE = SandboxConfig(image="debian", memory="2G")


def test_an_order_holds_until_it_is_changed(places: Paths) -> None:
    asked = Orders(places)
    assert asked.list() == []
    asked.set(DEBIAN, 2)
    asked.set(LARGE, 1)
    asked.set(DEBIAN, 3)
    assert {order.config: order.count for order in asked.list()} == {DEBIAN: 3, LARGE: 1}
    asked.set(LARGE, 0)
    assert [(order.config, order.count) for order in asked.list()] == [(DEBIAN, 3)]


def test_what_is_given_at_the_start_makes_no_other_order(places: Paths) -> None:
    with_ports = SandboxConfig(image="debian", port_forwards=(PortForward(0, 80),), boot_timeout=5)
    Orders(places).set(with_ports, 2)
    assert [order.config for order in Orders(places).list()] == [DEBIAN]
    assert digest_of(with_ports) == digest_of(DEBIAN) != digest_of(LARGE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"memory": "1G"}, {"memory": "1024M"}),
        ({"memory": "1G"}, {"memory": 1024}),
        ({"disk_size": "10G"}, {"disk_size": "10240M"}),
        ({"accel": None}, {"accel": Accelerator.TCG}),
        ({"arch": None}, {"arch": Architecture.host()}),
    ],
)
def test_what_means_the_same_is_one_order(
    places: Paths, one: dict[str, Any], other: dict[str, Any]
) -> None:
    first, second = (SandboxConfig.parse({"image": "debian", **given}) for given in (one, other))
    assert digest_of(first) == digest_of(second)
    Orders(places).set(first, 2)
    Orders(places).set(second, 1)
    assert [order.count for order in Orders(places).list()] == [1]


def test_a_file_with_two_texts_for_one_machine_has_one_order(places: Paths) -> None:
    """Such a file is from before they were compared by what they mean."""
    texts = [SandboxConfig(image="debian", memory=text).to_json() for text in ("1G", "1024M")]
    orders = [{"config": config, "count": count} for count, config in enumerate(texts, 2)]
    write_json(places.data / "spares.json", {"schema_version": 1, "orders": orders})
    assert [order.count for order in Orders(places).list()] == [3]


@pytest.mark.parametrize("text", ["", "{", '{"schema_version": 2, "orders": []}'])
def test_a_file_that_cannot_be_read_is_not_replaced(places: Paths, text: str) -> None:
    file = places.data / "spares.json"
    file.write_text(text)
    with pytest.raises(StateError, match=str(file)):
        Orders(places).set(DEBIAN, 1)
    assert file.read_text() == text
    assert Orders(places).list() == []


@pytest.mark.parametrize("count", [-1, SPARES_MAX + 1, True, "2"])
def test_a_bad_number_is_refused(places: Paths, count: Any) -> None:
    with pytest.raises(ConfigError):
        Orders(places).set(DEBIAN, count)


@given(st.one_of(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists)))
def test_a_nonsense_file_is_no_order(value: Any) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as root:
        paths = Paths(runtime=Path(root), data=Path(root), cache=Path(root), memory=None)
        for text in (json.dumps(value), json.dumps({"schema_version": 1, "orders": value})):
            (Path(root) / "spares.json").write_text(text)
            assert Orders(paths).list() == []


def spare_json() -> dict[str, Any]:
    record = blank_record(DEBIAN)
    spare = Spare(id=record.id, key="k", record=record, run=RUN, port=3, until=None)
    assert Spare.from_json(json.loads(json.dumps(spare.to_json()))) == spare
    return json.loads(json.dumps(spare.to_json()))  # type: ignore[no-any-return]


@each(
    ("field", "value"),
    [
        ("schema_version", 99),
        ("id", "1" * 12),
        ("port", 1000),
        ("port", "x"),
        ("until", "soon"),
        ("record", None),
        ("run", {}),
    ],
)
def test_a_damaged_record_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        Spare.from_json({**spare_json(), field: value})


def test_a_directory_with_a_record_only_is_no_spare(places: Paths) -> None:
    """Nothing runs there: it is left of something, and is reaped like the rest."""
    root = places.sandboxes / ("0" * 12)
    root.mkdir(parents=True)
    assert not has_spares(places)
    (root / "spare.json").write_text(json.dumps(spare_json()))
    assert has_spares(places)
    assert list_spares(places) == []
    assert Registry(places).list() == []
