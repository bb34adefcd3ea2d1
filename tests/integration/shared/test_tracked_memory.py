"""The copying of what was written since the last checkpoint, on a kernel that tracks that: the
guest's, whatever the host's does. The real code runs there, in the host's Python with its own
libraries, since the image's lacks ctypes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import sysconfig
import tarfile
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from quicksand import Sandbox

pytestmark = pytest.mark.vm

SCRIPT = Path(__file__).with_name("tracked_guest.py")

LOADED = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("tracked_guest", sys.argv[1])
spec.loader.exec_module(importlib.util.module_from_spec(spec))
import concurrent.futures.thread, encodings.ascii, encodings.latin_1, hashlib
files = [getattr(m, "__file__", None) for m in list(sys.modules.values())]
print(json.dumps([[sys.path, sorted({f for f in files if f})], sys.executable]))
"""


def pack() -> bytes:
    """A tar of the script, this Python, the modules that the script loads and their libraries."""
    said = subprocess.run(
        [sys.executable, "-c", LOADED, SCRIPT], capture_output=True, text=True, check=True
    )
    (path, modules), executable = json.loads(said.stdout)
    roots = sorted((Path(root) for root in path if root), key=lambda root: -len(root.parts))
    executable = str(Path(executable).resolve())
    natives = [executable, *(name for name in modules if name.endswith(".so"))]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        tar.add(SCRIPT, "py/script.py")
        tar.add(executable, "py/python")
        for library in libraries(natives):
            tar.add(library.resolve(), f"py/lib/{library.name}")
        for name in modules:
            file = Path(name)
            root = next((root for root in roots if file.is_relative_to(root)), None)
            if root is not None and file != SCRIPT:
                tar.add(file, f"py/modules/{file.relative_to(root)}")
                # An emulated guest would take longer to compile it than for all the rest.
                compiled = Path(cache_from_source(file))
                if compiled.exists():
                    tar.add(compiled, f"py/modules/{compiled.relative_to(root)}")
    return buffer.getvalue()


def libraries(natives: list[str]) -> set[Path]:
    """Shared libraries that they need, the dynamic linker among them."""
    said = subprocess.run(["ldd", *natives], capture_output=True, text=True, check=True).stdout
    words = {word for word in said.split() if word.startswith("/") and not word.endswith(":")}
    return {Path(word) for word in words}


@pytest.mark.skipif(sysconfig.get_platform() != "linux-x86_64", reason="the image's architecture")
async def test_the_copy_is_the_memory_on_a_kernel_that_tracks_writes(vm: Sandbox) -> None:
    await vm.files.write("/root/py.tar.gz", pack())
    python = "lib/ld-linux-x86-64.so.2 --library-path /root/py/lib ./python -S -B"
    result = await vm.execute(
        "cd /root && tar xzf py.tar.gz && cd py"
        " && export PYTHONHOME=/root/py PYTHONPATH=/root/py/modules"
        f" && {python} script.py {python}",
        timeout=120,
    )
    assert result.exit_code == 0, result.stderr[-3000:]
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == [
        "write-protect",
        "soft-dirty",
    ]
