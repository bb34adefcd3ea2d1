"""What a user of E2B's SDK does first, unchanged, against `quicksand-tui api`."""

from __future__ import annotations

import re
from email import message_from_string
from pathlib import Path

import pytest

from tests.integration.e2b_sdk import install, listening, run_script

__all__ = ["listening"]

pytestmark = [pytest.mark.vm, pytest.mark.soak, pytest.mark.timeout(900)]


def test_the_quick_start_of_the_sdk_runs_as_it_is_printed(listening: str, tmp_path: Path) -> None:
    sdk = install(tmp_path / "venv", "e2b")
    (metadata,) = (tmp_path / "venv").glob("lib/python*/site-packages/e2b-[0-9]*/METADATA")
    page = message_from_string(metadata.read_text()).get_payload()
    examples = re.findall(r"```py(?:thon)?\n(.*?)```", str(page), re.DOTALL)
    script = tmp_path / "quick_start.py"
    script.write_text(next(found for found in examples if "Sandbox.create()" in found))
    told = re.findall(r"# (.+)", script.read_text())

    printed = run_script(sdk, script, listening, 300)

    assert [words for words in printed.splitlines() if words] == told
