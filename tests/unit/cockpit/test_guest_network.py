"""What a guest tells of its network: hostile text, and rates of readings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quicksand_tui.guest_network import Traffic, TrafficMeter, parse_traffic

HEAD = b"""Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
"""


def line(name: str, received: object, sent: object) -> bytes:
    return f"  {name}: {received} 1 0 0 0 0 0 0 {sent} 2 0 0 0 0 0 0\n".encode()


def test_all_interfaces_but_the_loopback_count() -> None:
    text = HEAD + line("lo", 999, 999) + line("eth0", 100, 20) + line("eth1", 5, 6)
    assert parse_traffic(text) == Traffic(received=105, sent=26)


@pytest.mark.parametrize(
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
def test_what_makes_no_sense_is_as_none(text: bytes) -> None:
    assert parse_traffic(text) is None


@given(st.binary(max_size=2000))
def test_whatever_a_guest_says_it_is_bounded(text: bytes) -> None:
    found = parse_traffic(text)
    assert found is None or 0 <= max(found.received, found.sent) <= 1 << 63


def test_rates_come_of_two_readings_and_a_reboot_is_no_rate() -> None:
    meter = TrafficMeter()
    meter.add(Traffic(received=1000, sent=0), 10.0)
    assert meter.rates is None
    meter.add(Traffic(received=3000, sent=500), 12.0)
    assert meter.rates is not None
    assert (meter.rates.received, meter.rates.sent) == (1000.0, 250.0)
    meter.add(Traffic(received=0, sent=0), 14.0)
    meter.add(None, 16.0)
    meter.add(Traffic(received=100, sent=0), 18.0)
    assert meter.rates.history == (1250.0,)
    meter.add(Traffic(received=300, sent=0), 20.0)
    assert meter.rates.history == (1250.0, 100.0)
