"""What the published core has, ours has, or a reason is written down.

`quicksand_core-0.14.0.txt` is what scripts/describe_api.py printed of the published package.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.each import each
from tests.unit.compat.checker import compared_calls
from tests.unit.compat.shims import CORE, run, said_by

HERE = Path(__file__).parent
TABLE = HERE / "quicksand_core-0.14.0.txt"
DIFFERENCES = HERE / "differences.txt"
EXACT = (
    *("OS", "Accelerator", "AcceleratorStatus", "Architecture", "BootTiming", "ExecuteResult"),
    *("Forward", "Guest", "Host", "ImageProvider", "Key", "MachineType", "Mount", "MountHandle"),
    *("MountType", "NetworkMode", "PlatformConfig", "PortForward", "ResolvedImage", "RuntimeInfo"),
    *("Sandbox", "SandboxConfig", "SandboxConfigParams", "SandboxUser", "SaveManifest"),
    *("detect_accelerator", "ensure_runtime", "get_accelerator", "get_machine_type"),
    *("get_platform_config", "install_qemu", "is_runtime_available"),
)
"""Names of the published core that are the engine's own."""


def test_all_differences_from_the_published_core_are_known_and_have_a_reason() -> None:
    done = run(str(HERE / "checker.py"), str(TABLE))
    assert done.returncode == 0, done.stderr
    blocks = DIFFERENCES.read_text().strip().split("\n\n")
    assert all(re.match(r"# \S.*\n[^#]", block) for block in blocks)
    known = [line for block in blocks for line in block.splitlines()[1:]]
    assert sorted(done.stdout.splitlines()) == sorted(known)


def test_a_table_of_what_ours_does_not_have_is_all_differences(tmp_path: Path) -> None:
    table = tmp_path / "table.txt"
    table.write_text(
        "quicksand_core._types.Sandbox class (image)\n"
        "quicksand_core._types.NoSuch class ()\n"
        "quicksand_core._types.NoSuch.member attribute\n"
        "quicksand_core.sandbox.Sandbox.start async def (soon)\n"
        "quicksand_core.sandbox.Sandbox.no_such def ()\n"
        "quicksand_core.no_such_module.name value\n"
        "quicksand_core.host.os_.OS.LINUX = 'gnu'\n"
        "quicksand_core.Sandbox is quicksand_core.SandboxConfig\n"
    )
    done = run(str(HERE / "checker.py"), str(table))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "quicksand_core._types.Sandbox: missing",
        "quicksand_core._types.NoSuch: missing",
        "quicksand_core.sandbox.Sandbox.start: does not take soon",
        "quicksand_core.sandbox.Sandbox.no_such: missing",
        "quicksand_core.no_such_module.name: missing",
        "quicksand_core.host.os_.OS.LINUX: = 'linux' instead of = 'gnu'",
        "quicksand_core.Sandbox: not quicksand_core.SandboxConfig",
    ]


@each(
    ("theirs", "ours", "what"),
    [
        ("(a, b=1)", "(a, b=1, c=2)", []),
        ("(a)", "(**more)", []),
        ("(a)", "(a, b)", ["needs b"]),
        ("(a, b)", "(b, a)", ["takes a at another place", "takes b at another place"]),
        ("(a)", "(*, a)", ["takes a by keyword only"]),
        ("(*, a)", "(a)", []),
        ("(a=1)", "(a=2)", ["a is 2, not 1, if it is not given"]),
        ("(a)", "(b=None)", ["does not take a"]),
    ],
)
def test_calls_are_compared_by_what_scripts_can_pass(
    theirs: str, ours: str, what: list[str]
) -> None:
    assert list(compared_calls(theirs, ours)) == what


def test_the_engines_names_are_the_engines_own_objects() -> None:
    code = f"""
import quicksand, quicksand_core
for name in {EXACT!r}:
    if getattr(quicksand, name) is not getattr(quicksand_core, name):
        print(name)
"""
    assert said_by(code) == ""


def test_a_part_that_is_not_here_says_what_to_use_instead() -> None:
    done = run("-c", "from quicksand_core.qemu import OverlayManager")
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith("ImportError: quicksand_core.qemu.OverlayManager is a part of the")
    assert said.endswith("Sandbox.save keeps a disk")
    done = run("-c", "from quicksand_core.qemu import NoSuch")
    assert "cannot import name 'NoSuch'" in done.stderr.splitlines()[-1]


def test_no_module_takes_the_engine_apart_by_names_with_an_underscore() -> None:
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("quicksand."):
                assert not [one.name for one in node.names if one.name.startswith("_")], path
