"""The program in the README of `quicksand_disks`, run with that package alone."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from quicksand_disks.qcow2 import create_overlay
from quicksand_disks.qcow2.writing import CLUSTER

from tests.unit.disks.diff.disks import Maker, fill, write_clusters
from tests.unit.test_alone import code_in
from tests.unit.test_house import PACKAGES


def clusters(disk: bytes) -> dict[int, bytes]:
    return {at // CLUSTER: disk[at : at + CLUSTER] for at in range(0, len(disk), CLUSTER)}


def test_its_program_shows_the_changes_of_a_layer_as_a_patch(maker: Maker, tmp_path: Path) -> None:
    tree = fill(tmp_path / "tree", {"etc/motd": b"one\ntwo\n", "etc/old": b"gone\n"})
    before = maker.filesystem(tree)
    (tmp_path / "motd").write_bytes(b"one\n2\n")
    script = ("rm /etc/motd", f"write {tmp_path / 'motd'} /etc/motd", "rm /etc/old")
    after = maker.debug(before, *script)
    base, layer = tmp_path / "base.qcow2", tmp_path / "layer.qcow2"
    create_overlay(base, backing=None, size=len(before))
    write_clusters(base, clusters(before))
    create_overlay(layer, backing=base, size=len(before))
    old, new = clusters(before), clusters(after)
    write_clusters(layer, {at: data for at, data in new.items() if old[at] != data})

    package = PACKAGES["quicksand_disks"]
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / package.name).symlink_to(package)
    paths = [str(tmp_path / "path")]
    if (zstd := find_spec("backports.zstd")) is not None:
        paths.append(str(Path(str(zstd.origin)).parents[2]))
    program = code_in(package / "README.md", "python")
    assert len(program.splitlines()) <= 16
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path += {paths}\n{program}",
            base,
            layer,
        ],
        capture_output=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.stderr == b""
    assert b"deleted file mode 100644\n--- a/etc/old\n+++ /dev/null\n" in done.stdout
    assert b"--- a/etc/motd\n+++ b/etc/motd\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n" in done.stdout
