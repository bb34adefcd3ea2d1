"""The ssh that leads to another machine, as a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.base.errors import HostError
from quicksand.remote.destination import Destination
from quicksand.remote.ssh import start_ssh

BOX = Destination.parse("ssh://box")

STUBBORN = """#!/bin/sh
trap 'echo told > "$0.ended"; exit 0' TERM
echo "$@" > "$0.words"
exec 3<&0 4>&1
echo ready
while :; do sleep 0.05; done
"""


async def test_without_ssh_it_is_said_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="there is no ssh") as caught:
        await start_ssh(BOX, asks=False)
    assert caught.value.hint == "install the OpenSSH client"


async def test_an_ssh_that_hangs_is_told_to_end_before_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has also not been told to become the master of the user's connections."""
    program = tmp_path / "ssh"
    program.write_text(STUBBORN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    ssh = await start_ssh(BOX, asks=False)
    assert await ssh.reader.readline() == b"ready\n"
    await ssh.end()
    assert (tmp_path / "ssh.ended").read_text() == "told\n"
    assert "-o ControlMaster=no" in (tmp_path / "ssh.words").read_text()
