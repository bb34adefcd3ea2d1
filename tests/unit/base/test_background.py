"""Giving a process in the background what it is to do."""

from __future__ import annotations

import os
import socket

import pytest
from quicksand.base.background import PASSED_MAX, StandBy, receive


def test_a_process_gets_its_value_and_more_descriptors_than_one_message_carries() -> None:
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    count = PASSED_MAX * 2 + 1
    with theirs:
        StandBy(ours).give({"id": "a", "text": "x" * 20_000}, [read] * (count - 1) + [write])
        value, passed = receive(theirs.fileno())
    try:
        assert value == {"id": "a", "text": "x" * 20_000}
        assert len(passed) == count
        os.write(passed[-1], b"it")  # in their order
        assert os.read(passed[0], 10) == b"it"
        assert not any(map(os.get_inheritable, passed))
    finally:
        for descriptor in (*passed, read, write):
            os.close(descriptor)


def test_one_that_is_given_nothing_is_told_so() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        StandBy(ours).close()
        with pytest.raises(ValueError):
            receive(theirs.fileno())
