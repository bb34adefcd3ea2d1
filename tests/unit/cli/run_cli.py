"""Running the command line as a process, in the test's places."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping

from quicksand.base.files import write_json
from quicksand.base.paths import Paths
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import sandbox_dir
from quicksand.records.sandboxes import Record

MODULE = (sys.executable, "-m", "quicksand_tui")


def quicksand(
    *arguments: str, env: Mapping[str, str] | None = None, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """One command; its streams are pipes."""
    return subprocess.run(
        [*MODULE, *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        env={**os.environ, **(env or {})},
        check=False,
    )


def make_stopped(places: Paths, name: str, **config: object) -> Record:
    """A stopped sandbox on disk, without a disk image."""
    id_ = os.urandom(6).hex()
    record = Record(
        id=id_,
        name=name,
        config=SandboxConfig.parse({"image": "debian", **config}),
        image_digest="",
        chain=(),
        created=time.time() - 3600,
        committed=True,
        discard=False,
    )
    place = sandbox_dir(places, id_)
    place.root.mkdir(parents=True)
    place.lock.touch()
    write_json(place.record, record.to_json())
    return record
