"""The devices with which a QEMU was built. Distributions build it with fewer, or put parts of it
into separate packages, and a sandbox needs those that our own plan of a machine names.

QEMU is asked over QMP for the types that it knows, including those of its modules. Its messages
when a machine cannot be made are for people only.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.tools import Findings, program_key
from quicksand.qemu.command import Boot, Inherited, MachinePlan, plan
from quicksand.records.config import Accelerator, NetworkMode

ASK_TIMEOUT_S = 20.0
MACHINES = {Architecture.X86_64: "q35", Architecture.ARM64: "virt"}

_QUESTIONS = ("qmp_capabilities", "qom-list-types", "query-machines", "quit")
_NOWHERE = Path("/")


def types_in(arguments: Sequence[str]) -> frozenset[str]:
    """The types of devices and objects that arguments of `plan` name."""
    found = set()
    for option, value in itertools.pairwise(arguments):
        if option not in ("-device", "-object"):
            continue
        if value.startswith("{"):
            fields = json.loads(value)
            found.add(str(fields.get("driver") or fields["qom-type"]))
        else:
            found.add(value.partition(",")[0])
    return frozenset(found)


@cache
def needed_types(arch: Architecture, *, display: bool) -> frozenset[str]:
    """The types of devices and objects that every sandbox has, or every one with a display, and
    the machine's own (``q35``, ``virt``)."""
    machine = MachinePlan(
        name="",
        arch=arch,
        accel=Accelerator.TCG,
        memory_bytes=0,
        cpus=1,
        boot=Boot(kernel=_NOWHERE, initrd=_NOWHERE, disk=_NOWHERE, backing=(), hostname=""),
        network=NetworkMode.MOUNTS_ONLY,
        display=display,
        mac="",
        aio="threads",
    )
    nothing = Inherited(qmp=(), agent=(0,), shares=(), vnc=_NOWHERE, vnc_port=_NOWHERE)
    return types_in(plan(machine, nothing)) | {MACHINES[arch]}


def lacking_types(
    system: Path, arch: Architecture, *, words: Sequence[str] = (), env: Mapping[str, str]
) -> frozenset[str]:
    """Return the types that a machine with a display needs and the program ``system`` does not
    know. ``words`` are arguments that it needs, ``env`` variables.

    A program that does not answer counts as lacking nothing: its own error, when a machine starts,
    tells more. A complete result is remembered until the program changes; missing types may come
    with another package. Blocks. Raises DiskSpaceError, PathError, OSError.
    """
    needed = needed_types(arch, display=True)
    digest = hashlib.sha256(" ".join(sorted(needed)).encode()).hexdigest()[:16]
    key = f"{program_key(system)}:{arch.value}:{digest}"
    whole = Findings("qemu-whole.json")
    if whole.get(key) is True:
        return frozenset()
    known = _ask(system, words, env)
    if not known:
        return frozenset()
    if not (lacking := needed - known):
        whole.put(key, True)
    return lacking


def _ask(system: Path, words: Sequence[str], env: Mapping[str, str]) -> frozenset[str]:
    """Return the names of all types and machines that QEMU knows; empty if it does not tell."""
    talk = "".join(json.dumps({"execute": question}) + "\n" for question in _QUESTIONS)
    argv = [str(system), *words, "-nodefaults", "-no-user-config", "-display", "none"]
    try:
        done = subprocess.run(
            [*argv, "-machine", "none", "-qmp", "stdio"],
            input=talk.encode(),
            env={**os.environ, **env},
            capture_output=True,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return frozenset()
    return frozenset(_names(_replies(done.stdout)))


def _replies(output: bytes) -> list[dict[str, Any]]:
    """Return the objects in QEMU's output, one a line; other lines are left out."""
    found = []
    for line in output.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _names(replies: Iterable[dict[str, Any]]) -> Iterable[str]:
    """Yield the names in answers that are lists; a machine has an alias for its newest version."""
    for reply in replies:
        answer = reply.get("return")
        for one in answer if isinstance(answer, list) else ():
            if isinstance(one, dict):
                yield from (str(one[key]) for key in ("name", "alias") if key in one)
