"""Rates of a guest's network, of readings."""

from __future__ import annotations

from quicksand.things.sandbox_facts import GuestTraffic

from quicksand_tui.model.shown_sandboxes import TrafficMeter


def test_rates_come_of_two_readings_and_a_reboot_is_no_rate() -> None:
    meter = TrafficMeter()
    meter.add(GuestTraffic(received=1000, sent=0), 10.0)
    assert meter.rates is None
    meter.add(GuestTraffic(received=3000, sent=500), 12.0)
    assert meter.rates is not None
    assert (meter.rates.received, meter.rates.sent) == (1000.0, 250.0)
    meter.add(GuestTraffic(received=0, sent=0), 14.0)
    meter.add(None, 16.0)
    meter.add(GuestTraffic(received=100, sent=0), 18.0)
    assert meter.rates is None
    meter.add(GuestTraffic(received=300, sent=0), 20.0)
    assert meter.rates.history == (1250.0, 100.0)
