"""The sshd of the tests themselves."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.ssh_server import FarHost, far_environ, find_sshd, with_sshd


def logs_in(far: FarHost) -> None:
    found = subprocess.run(
        ["ssh", "-p", str(far.port), "localhost", "echo", "in"],
        env=far.environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert found.stdout == b"in\n", found.stderr


@pytest.mark.skipif(find_sshd() is None, reason="this host has no sshd")
@pytest.mark.skipif(os.geteuid() != 0, reason="only an sshd of root's needs the directory")
def test_a_server_outlives_that_of_another_test_which_was_first() -> None:
    """Two files of tests run at a time. The one that had made the directory took it away, and the
    other's connections were reset."""
    with contextlib.ExitStack() as one, contextlib.ExitStack() as other:
        first, second = (
            stack.enter_context(
                with_sshd(
                    Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qsh-"))),
                    far_environ(),
                )
            )
            for stack in (one, other)
        )
        logs_in(first)
        logs_in(second)
        one.close()
        logs_in(second)
