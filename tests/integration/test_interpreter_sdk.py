"""Both classes of E2B's package for the code interpreter, against `quicksand-tui api`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand_images.build import ensure_image

from tests.integration.e2b_sdk import install, listening, run_script

__all__ = ["listening"]

pytestmark = [pytest.mark.vm, pytest.mark.soak, pytest.mark.timeout(3600)]

SCRIPT = """
import asyncio
import json

from e2b_code_interpreter import AsyncSandbox, Sandbox

SLOW = 300  # seconds: an emulated guest on a busy host


def seen(execution):
    error = execution.error
    return [execution.text, "".join(execution.logs.stdout), error.name if error else None]


async def with_the_async_class(id_):
    sandbox = await AsyncSandbox.connect(id_)

    async def run(code, **more):
        return seen(await sandbox.run_code(code, timeout=SLOW, request_timeout=SLOW, **more))

    other = await sandbox.create_code_context(cwd="/tmp", request_timeout=SLOW)
    lines = []
    both = await asyncio.gather(
        run("print('one'); x + 1", on_stdout=lambda message: lines.append(message.line)),
        run("import os; os.getcwd()", context=other),
    )
    contexts = await sandbox.list_code_contexts()
    is_listed = other.id in [context.id for context in contexts]
    lost = await run("x", context=other)
    await sandbox.remove_code_context(other)
    return [*both, lines, is_listed, lost]


with Sandbox.create(timeout=1800, request_timeout=SLOW) as sandbox:

    def run(code, **more):
        return seen(sandbox.run_code(code, timeout=SLOW, request_timeout=SLOW, **more))

    told = {
        "sync": [
            run("x = 1"),
            run("import os; os.environ['A']", envs={"A": "cell"}),
            run("1 / 0"),
        ],
        "async": asyncio.run(with_the_async_class(sandbox.sandbox_id)),
    }
    try:
        sandbox.run_code("x = 2\\nwhile True: pass", timeout=5)
        told["limited"] = False
    except Exception as error:
        told["limited"] = type(error).__name__
    told["then"] = run("x")
print(json.dumps(told))
"""


async def test_both_classes_of_the_package_run_cells(
    places: Paths, listening: str, tmp_path: Path
) -> None:
    await ensure_image("code-interpreter", store=ImageStore(places.images))
    sdk = install(tmp_path / "venv", "e2b-code-interpreter")
    script = tmp_path / "cells.py"
    script.write_text(SCRIPT)

    told = json.loads(run_script(sdk, script, listening, 1800))

    assert told == {
        "sync": [[None, "", None], ["cell", "", None], [None, "", "ZeroDivisionError"]],
        "async": [
            ["2", "one\n", None],
            ["/tmp", "", None],
            ["one\n"],
            True,
            [None, "", "NameError"],
        ],
        "limited": "TimeoutException",
        "then": ["2", "", None],
    }
