"""What is said of guests' networks: names that they cannot find."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand import NetworkMode
from quicksand.guest import network
from quicksand.guest.network import network_notices, why_no_names


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
