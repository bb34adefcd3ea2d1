"""The differences between two disks: paths, the lines of small texts, packages by the databases of
dpkg and apk, and all of it as a patch for `git apply` and `patch -p1`.

Only blocks that the two disks do not share are compared. The guests wrote both disks, so the work
for a single text and for all of them is bounded.
"""

from quicksand_disks.changes import ChangeKind, FileChange, FileType
from quicksand_disks.comparing.guest_packages import (
    PackageChange,
    PackageChangeKind,
    package_changes,
)
from quicksand_disks.comparing.lines import Hunk
from quicksand_disks.comparing.side_by_side import compare
from quicksand_disks.comparing.versions import (
    FILE_MAX,
    TEXT_MAX,
    FileVersions,
    Patch,
    Version,
    VersionReader,
    count_lines,
    make_patch,
)

__all__ = [
    "FILE_MAX",
    "TEXT_MAX",
    "ChangeKind",
    "FileChange",
    "FileType",
    "FileVersions",
    "Hunk",
    "PackageChange",
    "PackageChangeKind",
    "Patch",
    "Version",
    "VersionReader",
    "compare",
    "count_lines",
    "make_patch",
    "package_changes",
]
