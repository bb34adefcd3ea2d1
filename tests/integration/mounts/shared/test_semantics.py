"""What programs in the guest may expect of a mounted directory (in_guest/checks.py)."""

from __future__ import annotations

import pytest

from tests.integration.mounts.shared.conftest import Both

pytestmark = pytest.mark.vm

CHECKS = [
    "modes",
    "programs_run",
    "symlinks",
    "hard_links",
    "fifos",
    "renames",
    "directories_move_with_open_files",
    "unlinked_files_live",
    "full_directories_stay",
    "cases",
    "attributes",
    "sizes_and_holes",
    "whole_file_locks",
    "range_locks",
    "shared_memory",
    "appending_together",
    "times",
    "names",
    "copies_in_the_host",
    "owners_do_not_break_programs",
    "deep_trees",
]


@pytest.mark.parametrize("check", CHECKS)
async def test_programs_find_what_they_expect(both: Both, check: str) -> None:
    await both.python("checks", check)
