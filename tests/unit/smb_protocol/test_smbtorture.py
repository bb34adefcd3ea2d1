"""Samba's own tests against our server. smbtorture.txt says how each ends, and why if it fails."""

from __future__ import annotations

import sys

import pytest

from tests import torture
from tests.torture import Expected

EXPECTED = torture.expected()
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="scripts/tools.py gets it there")

SLICE = (
    "smb2.connect.connect",
    "smb2.tcon.tcon",
    "smb2.read.access.access",
    "smb2.rw.invalid.invalid",
    "smb2.mkdir.mkdir",
    "smb2.rename.msword.msword",
    "smb2.credits.skipped_mid.skipped_mid",
    "smb2.compound.related6.related6",
    "smb2.compound.invalid3.invalid3",
    "smb2.compound.compound-padding.compound-padding",
    "smb2.compound_find.compound_find_related.compound_find_related",
    "smb2.compound_async.flush_close.flush_close",
    "smb2.create.blob.blob",
    "smb2.create.aclfile.aclfile",
    "smb2.delete-on-close-perms.OVERWRITE_IF Existing.OVERWRITE_IF Existing",
    "smb2.dir.sorted.sorted",
    "smb2.fileid.fileid.fileid",
    "smb2.getinfo.qfile_buffercheck.qfile_buffercheck",
    "smb2.ioctl.copy_chunk_overwrite.copy_chunk_overwrite",
    "smb2.ioctl.sparse_qar.sparse_qar",
    "smb2.lease.upgrade2.upgrade2",
    "smb2.lock.multiple-unlock.multiple-unlock",
    "smb2.notify.tdis1.tdis1",
    "smb2.oplock.exclusive2.exclusive2",
    "smb2.setinfo.setinfo",
    "smb2.streams.io.io",
    "smb2.timestamps.freeze-thaw.freeze-thaw",
)


@pytest.mark.parametrize("name", SLICE)
def test_a_representative_slice(name: str) -> None:
    ended = torture.run(name)
    assert ended.ending == "pass", ended.detail


def test_the_list_says_why() -> None:
    assert [one for one in EXPECTED if one.ending in ("fail", "hang") and not one.reason] == []
    assert [one for one in EXPECTED if one.ending not in ("pass", "fail", "skip", "hang")] == []
    assert set(SLICE) <= {one.name for one in EXPECTED if one.ending == "pass"}


@pytest.mark.soak
def test_the_list_is_whole() -> None:
    listed = {one.name for one in EXPECTED}
    groups = {torture.group(name) for name in listed}
    there = [name for name in torture.all_names() if torture.group(name) in groups]
    assert sorted(listed ^ set(there)) == []


@pytest.mark.soak
@pytest.mark.parametrize("wanted", EXPECTED, ids=lambda one: one.name)
def test_each_ends_as_the_list_says(wanted: Expected) -> None:
    patience_s = torture.HANGS_AFTER_S if wanted.ending == "hang" else torture.PATIENCE_S
    ended = torture.run(wanted.name, patience_s=patience_s)
    assert ended.ending == wanted.ending, ended.detail
