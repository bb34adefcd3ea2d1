"""The specification's Forward, Host and Guest."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand import Forward, Guest, Host, PortForward, SandboxConfig
from quicksand.base.errors import ConfigError, PortInUseError
from quicksand.qemu.planning import pick_ports

from tests.each import each

forward: Any = Forward
"""Without its types."""


@each(
    "host",
    [
        Host(8080),
        Host(port=8080),
        Host("127.0.0.1", 8080),
        Host(8080, "127.0.0.1"),
        Host("127.0.0.1:8080"),
        Host(port=8080, address="localhost"),
        Host(8080, None),
        Host(port=8080, address=None),
    ],
)
def test_every_form_of_an_end(host: Host) -> None:
    found = Forward(host, Guest(80))
    assert isinstance(found, PortForward)
    assert (found.host, found.guest) == (8080, 80)
    assert (found.src, found.dst, found.host_to_guest) == (Host(8080), Guest(80), True)


def test_a_sandbox_takes_them_like_others_and_keeps_them() -> None:
    both = (Forward(Host(0), Guest("10.0.2.15:22")), PortForward(8080, 80))
    config = SandboxConfig(image="debian", port_forwards=both)
    kept = SandboxConfig.parse(config.to_json())
    assert kept.port_forwards == (PortForward(0, 22), PortForward(8080, 80))


@each(
    ("make", "message"),
    [
        (lambda: Host("0.0.0.0", 8080), "cannot be forwarded at '0.0.0.0'"),
        (lambda: Guest("10.0.2.2", 80), "cannot be forwarded at '10.0.2.2'"),
        (Host, "Host needs a port"),
        (lambda: Host("127.0.0.1"), "Host needs a port"),
        (lambda: Host("127.0.0.1:x"), "is no address and port"),
        (lambda: Host("127.0.0.1:99999999"), "is no address and port"),
        (lambda: Forward(Host(99999), Guest(80)), "host"),
        (lambda: Forward(Host(80), Guest(0)), "guest"),
        (lambda: forward(Guest(80), Host(80)), "from the host to the guest only"),
        (lambda: forward(8080, 80), "from the host to the guest only"),
    ],
)
def test_what_cannot_be_forwarded(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()  # type: ignore[operator]


def test_a_port_that_is_taken_is_said_with_what_to_change() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        config = SandboxConfig(image="debian", enable_display=True, vnc_port=port)
        with pytest.raises(PortInUseError, match=f"^the VNC port {port} cannot be used") as caught:
            pick_ports(SimpleNamespace(config=config))  # type: ignore[arg-type]
        assert "`--vnc-port`" in caught.value.hint
