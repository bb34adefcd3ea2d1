"""What a guest tells of its network: hostile text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from quicksand.guest.network import parse_traffic
from quicksand.things.sandbox_facts import GuestTraffic

from tests.each import each

HEAD = b"""Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
"""


def line(name: str, received: object, sent: object) -> bytes:
    return f"  {name}: {received} 1 0 0 0 0 0 0 {sent} 2 0 0 0 0 0 0\n".encode()


def test_all_interfaces_but_the_loopback_count() -> None:
    text = HEAD + line("lo", 999, 999) + line("eth0", 100, 20) + line("eth1", 5, 6)
    assert parse_traffic(text) == GuestTraffic(received=105, sent=26)


@each(
    "text",
    [
        b"",
        HEAD,
        HEAD + line("lo", 5, 5),
        HEAD + line("eth0", "-5", 5),
        HEAD + line("eth0", "x", 5),
        HEAD + line("eth0", "٣", 5),
        HEAD + line("eth0", "9" * 5000, 5),
        HEAD + line("eth0", (1 << 63) - 1, 5) + line("eth1", 2, 5),
        b"eth0: 1 2 3\n",
        b"\xff\xfe\x00" * 1000,
    ],
)
def test_malformed_traffic_is_read_as_none(text: bytes) -> None:
    assert parse_traffic(text) is None


@given(st.binary(max_size=2000))
def test_whatever_a_guest_says_it_is_bounded(text: bytes) -> None:
    found = parse_traffic(text)
    assert found is None or 0 <= max(found.received, found.sent) <= 1 << 63
