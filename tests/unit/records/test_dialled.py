"""The record of the forwards that were made while a sandbox runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import ConfigError
from quicksand.base.files import try_named_lock
from quicksand.records.dialled import Dialled, ForwarderFiles, read_dialled, write_dialled
from quicksand.records.port_forwards import PortForward, Protocol, check_forwards, parse_forward

WEB = PortForward(8080, 80)
DNS = PortForward(5353, 53, Protocol.UDP)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ForwarderFiles]:
    """Those of a process that lives."""
    found = ForwarderFiles(tmp_path)
    lock = try_named_lock(found.lock)
    assert lock is not None
    yield found
    os.close(lock)


def test_what_was_written_is_read(files: ForwarderFiles) -> None:
    assert read_dialled(files) == Dialled()
    write_dialled(files, [DNS, WEB])
    assert read_dialled(files) == Dialled((WEB, DNS))
    files.forwards.write_text('{"forwards": [[8080, 80]]}')  # an earlier version's
    assert read_dialled(files) == Dialled((WEB,))


def test_that_of_a_process_that_was_killed_counts_for_nothing(tmp_path: Path) -> None:
    files = ForwarderFiles(tmp_path)
    write_dialled(files, [WEB])
    assert read_dialled(files) == Dialled()
    files.forwards.write_text("{")
    assert read_dialled(files) == Dialled()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"forwards": 1}',
        '{"forwards": [[1]]}',
        '{"forwards": [["1", 2]]}',
        '{"forwards": [[1, 70000]]}',
        '{"forwards": [], "udp": {}}',
        "[" * 100_000,
    ],
)
def test_one_that_is_broken_is_told_and_not_raised(files: ForwarderFiles, text: str) -> None:
    files.forwards.write_text(text)
    found = read_dialled(files)
    assert found.forwards == ()
    assert found.error.startswith("the record of its forwarded ports is broken: ")


@given(st.integers(0, 65535), st.integers(1, 65535), st.sampled_from(["", "/tcp", "/udp"]))
def test_a_word_may_name_the_protocol(host: int, guest: int, suffix: str) -> None:
    protocol = Protocol(suffix[1:] or "tcp")
    assert parse_forward(f"{host}:{guest}{suffix}") == PortForward(host, guest, protocol)


def test_what_is_no_protocol_is_refused() -> None:
    for word in ("53/", "53/sctp", "53/UDP", "53:/udp", "/udp"):
        with pytest.raises(ConfigError, match="is not HOST:GUEST"):
            parse_forward(word)
    with pytest.raises(ConfigError, match="is no protocol of a port"):
        PortForward(1, 2, "sctp")  # type: ignore[arg-type]
    assert PortForward(5353, 53, "udp") == DNS  # type: ignore[arg-type]


def test_a_port_of_udp_is_another_one_than_that_of_tcp() -> None:
    check_forwards([WEB, DNS, PortForward(DNS.host, 80)])
    with pytest.raises(ConfigError, match="5353 is forwarded twice"):
        check_forwards([DNS, PortForward(DNS.host, 54, Protocol.UDP)])
