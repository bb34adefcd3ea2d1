"""What is said of guests' networks: names that they cannot find, ports that lead nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand import NetworkMode
from quicksand.guest import network
from quicksand.guest.network import network_notices, only_local, why_no_names

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
ANY, LOCAL, LOCAL_2, OWN = "00000000", "0100007F", "0200007F", "0F02000A"
ANY_6, LOCAL_6 = "0" * 32, "00000000000000000000000001000000"


def table(*rows: tuple[str, int, str]) -> str:
    return HEAD + "".join(
        f"   {number}: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000\n"
        for number, (address, port, state) in enumerate(rows)
    )


@pytest.fixture
def resolv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "resolv.conf"
    monkeypatch.setattr(network, "RESOLV_CONF", path)
    return path


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("nameserver 2001:4860:4860::8888\n", "names only 2001:4860:4860::8888"),
        ("search home\nnameserver fe80::1%eth0\nnameserver ::1\n", "fe80::1%eth0, ::1"),
        ("# nameserver 1.1.1.1\n", "no resolver"),
        ("nameserver\nnameserver one.one\n", "names only one.one"),
        ("", "no resolver"),
    ],
)
def test_a_host_whose_resolvers_are_ipv6_only_is_told_of(
    resolv: Path, text: str, word: str
) -> None:
    resolv.write_text(text)
    assert word in why_no_names()
    (notice,) = network_notices(NetworkMode.FULL)
    assert word in notice
    assert network_notices(NetworkMode.MOUNTS_ONLY) == (), "there are no names in any case"


@pytest.mark.parametrize(
    "text", ["nameserver 1.1.1.1\n", "nameserver ::1\nnameserver\t127.0.0.53  # mine\n"]
)
def test_one_ipv4_resolver_is_enough(resolv: Path, text: str) -> None:
    resolv.write_text(text)
    assert network_notices(NetworkMode.FULL) == ()


def test_a_missing_file_is_no_error(resolv: Path) -> None:
    assert "cannot be read" in why_no_names()


@pytest.mark.parametrize(
    ("tables", "found"),
    [
        ([table((LOCAL, 80, "0A"))], [80]),
        ([table((LOCAL_2, 80, "0A"))], [80]),
        ([table(), table((LOCAL_6, 80, "0A"))], [80]),
        ([table((ANY, 80, "0A"))], []),
        ([table((OWN, 80, "0A"))], []),
        ([table((LOCAL, 80, "0A"), (ANY, 80, "0A"))], []),
        ([table((LOCAL, 80, "0A")), table((ANY_6, 80, "0A"))], []),
        ([table((LOCAL, 80, "01"))], []),
        ([table((LOCAL, 81, "0A"))], []),
        ([table((LOCAL, 443, "0A"), (LOCAL, 80, "0A"))], [80, 443]),
        (["nonsense", "a b:zz c 0A", ""], []),
    ],
)
def test_a_port_at_which_only_the_guest_itself_is_heard(
    tables: list[str], found: list[int]
) -> None:
    assert only_local(tables, [80, 443]) == found
