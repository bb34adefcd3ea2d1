"""`events` follows what other processes do to a real sandbox."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.commands.conftest import execute, start_quicksand, succeed

pytestmark = pytest.mark.vm


@contextmanager
def ended_after(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()


def test_what_other_processes_do_is_told_as_it_happens(vm: str) -> None:
    with start_quicksand("events", "-f", "--json", vm) as process, ended_after(process):
        assert process.stdout is not None

        def following(*kinds: str) -> dict[str, Any]:
            """The next event of one of these kinds."""
            assert process.stdout is not None
            while line := process.stdout.readline():
                event: dict[str, Any] = json.loads(line)
                if event["event"] in kinds:
                    return event
            raise AssertionError(f"no {kinds}")

        def until(kind: str) -> dict[str, Any]:
            return following(kind)

        assert json.loads(process.stdout.readline())["event"] == "watching"
        assert execute(vm, ["sh", "-c", "exit 3"]).exit_code == 3
        ended = until("command")
        assert (ended["name"], ended["command"], ended["exit_code"]) == (vm, "sh -c exit 3", 3)
        succeed("checkpoint", vm, "one")
        assert (made := until("checkpoint"))["tag"] == "one" and not made["auto"]
        succeed("revert", vm, "one")
        # The state before the revert may be stored, and told of, after it.
        told = {
            event["event"]: event for event in (following("checkpoint", "reverted") for _ in "12")
        }
        assert told["checkpoint"]["auto"] and told["reverted"]["to"] == "one"
        succeed("pause", vm)
        assert until("state")["to"] == "paused"
        succeed("resume", vm)
        assert until("state")["to"] == "running"
        succeed("checkpoint", "rm", vm, "one")
        assert until("checkpoint_deleted")["tag"] == "one"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    past = [json.loads(line) for line in succeed("events", "--json", vm).splitlines()]
    assert {"created", "state", "command"} <= {event["event"] for event in past}
