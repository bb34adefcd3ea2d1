"""Files that git runs or obeys because a repository's configuration names them, such as hooks in
`core.hooksPath`. A file that a guest can write must not become a command of the host unseen.

Everything may have been written by a guest: only regular files are read, and their number and size
are limited. The result is a list and no proof: a command may name further files in ways that only
its shell knows.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from quicksand_smb.triggers import GIT

from quicksand.base.regular import open_file
from quicksand.mounts.git_config import Setting, parse
from quicksand.mounts.git_settings import COMMANDS, HOOKS, INCLUDES, PATHS

ENTRIES_MAX = 20_000
"""The most directory entries that are searched for repositories, those further up first."""
DEPTH_MAX = 8
REPOSITORIES_MAX = 64
FILES_MAX = 64
"""The most files of configuration of one repository."""
BYTES_MAX = 256 * 1024
"""The most bytes that are read of each."""
INCLUDE_DEPTH_MAX = 10
"""As in git."""
FOUND_MAX = 200
NO_MODULES = ("objects", "refs", "logs", "hooks", "info")
"""Directories of git that contain no other git directories."""
OF_USER = ("~/.gitconfig", "~/.config/git/config")
"""The user's own configuration; a relative path in it counts in each work tree."""
_BETWEEN_WORDS = re.compile(r"""[\s;|&()<>"'`=!]+""")


def find_commands(root: str) -> tuple[str, ...]:
    """Return the paths at or below ``root``, a path without links, that programs of the host run or
    obey because of the configuration of a repository there or above. Blocks for I/O."""
    found: dict[str, None] = {}
    for tree in _work_trees(root):
        for path in _Repository(tree).named():
            for one in (path, os.path.realpath(path)):
                if len(found) < FOUND_MAX and _overlaps(one, root):
                    found[one] = None
    return tuple(found)


def _overlaps(path: str, root: str) -> bool:
    return os.path.commonpath([path, root]) in (path, root)


def _work_trees(root: str) -> Iterator[str]:
    """Directories with a `.git`: the nearest one above, and those at or below ``root``."""
    above = [str(one) for one in Path(root).parents if os.path.lexists(one / ".git")]
    yield from above[:1]
    waiting, seen, found = deque([(root, 0)]), 0, 0
    while waiting and seen < ENTRIES_MAX and found < REPOSITORIES_MAX:
        directory, depth = waiting.popleft()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    seen += 1
                    if entry.name.casefold() == ".git":
                        found += 1
                        yield directory
                    elif depth < DEPTH_MAX and entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth + 1))
                    if seen >= ENTRIES_MAX:
                        break
        except OSError:
            continue  # gone by now, or not for this user


def _read(path: str) -> str:
    """Return the text of a file; "" if it cannot be read."""
    try:
        with open_file(path) as file:
            return file.read(BYTES_MAX).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return ""


class _Repository:
    """A work tree, and the paths that its configuration names."""

    def __init__(self, tree: str) -> None:
        self._tree = tree
        self._files = 0

    def named(self) -> Iterator[str]:
        """Yield the absolute paths of files and directories."""
        git = self._git_directory()
        common = _leads_to(git, _read(f"{git}/commondir"))
        for directory in dict.fromkeys((git, common, *self._modules(common))):
            if ".git" not in Path(directory).parts:
                # Where `.git` is a file that leads here.
                yield from (f"{directory}/{name}" for name in GIT)
            for name in ("config", "config.worktree"):
                yield from self._of_file(f"{directory}/{name}", 0)
        for path in OF_USER:
            yield from self._of_file(_leads_to(self._tree, path), 0)

    def _git_directory(self) -> str:
        """Return its `.git`, or the directory to which it leads, as in submodules and worktrees."""
        git = f"{self._tree}/.git"
        says = _read(git)
        return _leads_to(self._tree, says.removeprefix("gitdir:")) if says else git

    def _modules(self, git: str) -> Iterator[str]:
        """Yield the git directories of submodules, also without a work tree, and of work trees."""
        for top in ("modules", "worktrees"):
            for at, directories, files in os.walk(f"{git}/{top}"):
                directories[:] = [one for one in directories if one not in NO_MODULES]
                if "HEAD" in files:
                    yield at
                self._files += 1
                if self._files >= FILES_MAX:
                    return

    def _of_file(self, path: str, depth: int) -> Iterator[str]:
        self._files += 1
        if self._files > 2 * FILES_MAX:
            return
        for setting in parse(_read(path)):
            if setting.is_one_of(INCLUDES):
                included = _leads_to(str(Path(path).parent), setting.value)
                yield included
                if depth < INCLUDE_DEPTH_MAX:
                    yield from self._of_file(included, depth + 1)
            else:
                yield from self._of_setting(setting)

    def _of_setting(self, setting: Setting) -> Iterator[str]:
        if setting.is_one_of(PATHS):
            path = _leads_to(self._tree, setting.value)
            is_tree = os.path.commonpath([self._tree, path]) == path
            # Where hooks lie among other files, only these are commands.
            yield from (f"{path}/{hook}" for hook in HOOKS) if is_tree else (path,)
        elif setting.is_one_of(COMMANDS):
            for word in _BETWEEN_WORDS.split(setting.value):
                path = _leads_to(self._tree, word)
                kind = _kind(path) if word and "://" not in word else stat.S_IFDIR
                if kind == stat.S_IFREG or ("/" in word and kind != stat.S_IFDIR):
                    yield path


def _leads_to(start: str, value: str) -> str:
    """Return the path that a value names, relative to a directory."""
    path = Path(value.strip().replace("\0", ""))
    with contextlib.suppress(RuntimeError):  # no home directory is known
        path = path.expanduser()
    return os.path.normpath(Path(start) / path)


def _kind(path: str) -> int:
    """Return the type of the file there; 0 if there is none."""
    try:
        return stat.S_IFMT(os.stat(path).st_mode)  # noqa: PTH116
    except OSError:
        return 0
