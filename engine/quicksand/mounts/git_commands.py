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
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from quicksand_smb.triggers import GIT

from quicksand.base.regular import open_file

_HEADER = re.compile(r'\[\s*([-.A-Za-z0-9]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]')
_NAME = re.compile(r"([A-Za-z][-A-Za-z0-9]*)[ \t]*")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable with its value."""

    section: str
    """In lower case, without the subsection."""
    key: str
    """In lower case."""
    value: str

    def is_one_of(self, known: Collection[str]) -> bool:
        """Whether `SECTION.KEY` or `SECTION.*` is among those."""
        return f"{self.section}.{self.key}" in known or f"{self.section}.*" in known


def parse(text: str) -> Iterator[Setting]:
    """Yield the variables of a file, in their order. Unreadable parts are skipped."""
    # A byte order mark, as git skips it.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    section, at = "", 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text[at] == "[" and (header := _HEADER.match(text, at)):
            # `[section.subsection]` is the old way to write one.
            section, at = header[1].partition(".")[0].lower(), header.end()
        elif name := _NAME.match(text, at):
            at = name.end()
            if text[at : at + 1] == "=":
                value, at = _value(text, at + 1)
                yield Setting(section, name[1].lower(), value)
        else:
            end = text.find("\n", at)
            at = len(text) if end < 0 else end + 1


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the value that begins at a place, and the end of its line."""
    found: list[str] = []
    kept, is_quoted = 0, False
    while at < len(text) and text[at] != "\n":
        char, at = text[at], at + 1
        if char == '"':
            is_quoted = not is_quoted
            kept = len(found)
        elif char == "\\":
            escaped, at = text[at : at + 1], at + 1
            if escaped != "\n":
                found.append(_ESCAPES.get(escaped, escaped))
                kept = len(found)
        elif char in "#;" and not is_quoted:
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif char.isspace() and not is_quoted:
            found.extend(char if found else "")
        else:
            found.append(char)
            kept = len(found)
    return "".join(found[:kept]), at


INCLUDES = frozenset({"include.path", "includeif.path"})  # git-config(1), "Includes"

PATHS = frozenset(
    {
        "core.hookspath",  # githooks(5)
        "core.attributesfile",  # gitattributes(5): it chooses filters and drivers
        "init.templatedir",  # git-init(1), "TEMPLATE DIRECTORY": its hooks are copied
    }
)

COMMANDS = frozenset(
    {
        # git-config(1)
        "core.fsmonitor", "core.sshcommand", "core.editor", "core.pager", "core.askpass",
        "core.gitproxy", "core.alternaterefscommand", "sequence.editor", "interactive.difffilter",
        "pager.*", "alias.*", "browser.cmd", "browser.path", "man.cmd", "man.path",
        "remote.uploadpack", "remote.receivepack", "uploadpack.packobjectshook",
        "gpg.program", "gpg.defaultkeycommand", "guitool.cmd", "tar.command",
        "gc.recentobjectshook",
        # gitattributes(5)
        "filter.clean", "filter.smudge", "filter.process", "diff.command", "diff.textconv",
        "diff.external", "merge.driver",
        # git-mergetool(1), git-difftool(1)
        "mergetool.cmd", "mergetool.path", "difftool.cmd", "difftool.path",
        # gitcredentials(7)
        "credential.helper",
        # git-interpret-trailers(1)
        "trailer.command", "trailer.cmd",
        # git-submodule(1), "update"
        "submodule.update",
        # git-send-email(1), git-imap-send(1)
        "sendemail.sendmailcmd", "sendemail.smtpserver", "sendemail.tocmd", "sendemail.cccmd",
        "sendemail.headercmd", "imap.tunnel",
        # git-instaweb(1), git-svn(1)
        "instaweb.browser", "instaweb.httpd", "instaweb.modulepath", "svn.authorsprog",
        # git-lfs-config(5)
        "lfs.path", "lfs.clean", "lfs.smudge",
        # git-hook(1)
        "hook.command",
    }
)  # fmt: skip

HOOKS = (
    # githooks(5)
    "applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit",
    "prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge",
    "pre-push", "pre-receive", "update", "proc-receive", "post-receive", "post-update",
    "reference-transaction", "push-to-checkout", "pre-auto-gc", "post-rewrite",
    "sendemail-validate", "fsmonitor-watchman", "p4-changelist", "p4-prepare-changelist",
    "p4-post-changelist", "p4-pre-submit", "post-index-change",
)  # fmt: skip


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
