"""What a user of E2B's SDK does first, unchanged, against `quicksand-tui api`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import venv
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path

import pytest
from quicksand.base.paths import Paths
from quicksand.records.registry import Registry

pytestmark = [pytest.mark.vm, pytest.mark.soak, pytest.mark.timeout(900)]

PROGRAM = shlex.join([sys.executable, "-m", "quicksand_tui"])


@pytest.fixture
def sdk(tmp_path: Path) -> Path:
    """The interpreter of a fresh virtual environment with the newest SDK."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    installed = subprocess.run(
        [python, "-m", "pip", "-q", "install", "e2b"], capture_output=True, check=False
    )
    assert installed.returncode == 0, installed.stderr.decode()
    return python


@pytest.fixture
def listening(places: Paths) -> Iterator[str]:
    """The address of a server."""
    server = subprocess.Popen(
        [*shlex.split(PROGRAM), "api", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    with server.stdout:
        found = re.search(r"http://(\S+:\d+)", server.stdout.readline().decode())
        assert found is not None
        yield found[1]
        server.terminate()
        server.wait(30)
    assert not Registry(places).list(), "the SDK's `with` ends its sandbox"


def test_the_quick_start_of_the_sdk_runs_as_it_is_printed(
    sdk: Path, listening: str, tmp_path: Path
) -> None:
    (metadata,) = (tmp_path / "venv").glob("lib/python*/site-packages/e2b-[0-9]*/METADATA")
    page = message_from_string(metadata.read_text()).get_payload()
    examples = re.findall(r"```py(?:thon)?\n(.*?)```", str(page), re.DOTALL)
    script = tmp_path / "quick_start.py"
    script.write_text(next(found for found in examples if "Sandbox.create()" in found))
    told = re.findall(r"# (.+)", script.read_text())

    line = f'eval $({PROGRAM} api env --listen {listening}) && "{sdk}" "{script}"'
    environ = {name: text for name, text in os.environ.items() if not name.startswith("E2B_")}
    ran = subprocess.run(
        ["bash", "-c", line], env=environ, capture_output=True, text=True, timeout=300, check=False
    )

    assert ran.returncode == 0, ran.stderr
    assert [words for words in ran.stdout.splitlines() if words] == told
