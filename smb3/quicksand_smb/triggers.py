"""Files that programs of the host run or obey without being asked: git hooks, tasks of editors,
start files of shells. A guest that writes one commands whoever works in that directory.

A pattern is the end of a path, with `/`. `*` matches any one name and `**` any number of names.
Everything below a match belongs to it. Case is ignored, as some file systems do.
"""

from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quicksand_smb.names import Names

    _Pattern = tuple[str, ...]

_GIT: Final = (
    # gitrepository-layout(5). A lock file becomes the file; `commondir` leads to another config.
    "hooks", "config", "config.lock", "config.worktree", "config.worktree.lock", "commondir",
)  # fmt: skip

KNOWN: Final = (
    *(f".git/{name}" for name in _GIT),
    *(f".git/modules/**/{name}" for name in _GIT),
    *(f".git/worktrees/*/{name}" for name in (*_GIT, "gitdir")),
    *(f".git/worktrees/*/modules/**/{name}" for name in _GIT),
    ".gitconfig", ".config/git", ".husky",
    # Environments that shells enter with a directory.
    ".envrc", ".direnv", ".mise.toml", "mise.toml", ".config/mise", ".autoenv.zsh",
    # Editors.
    ".vscode/tasks.json", ".vscode/settings.json", ".vscode/launch.json", ".devcontainer", ".idea",
    ".zed/tasks.json", ".zed/settings.json", ".exrc", ".vimrc", ".nvimrc", ".nvim.lua",
    ".dir-locals.el",
    # Agents.
    ".mcp.json", ".claude/settings.json", ".claude/settings.local.json", ".cursor/mcp.json",
    # Tools that read files beside the sources.
    ".cargo/config", ".cargo/config.toml", ".npmrc", ".yarnrc.yml", ".pnpmfile.cjs", ".bazelrc",
    ".gdbinit", ".lldbinit",
    # Home directories.
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".zlogout", ".config/fish", ".config/autostart", ".config/systemd",
    ".config/environment.d", ".tmux.conf", ".xprofile", ".xinitrc", ".xsession",
    ".ssh/authorized_keys", ".ssh/config", ".ssh/rc",
)  # fmt: skip
"""The patterns that `protect` of a share stands for."""


_LINKS: Final = frozenset({".git"})
"""Names that may be a file which points to the directory of that name (gitrepository-layout(5))."""


class Triggers:
    """A set of patterns."""

    def __init__(self, patterns: tuple[str, ...] = KNOWN) -> None:
        self._rests: dict[str, list[_Pattern]] = {}
        """The rest of each pattern, by its first name."""
        for pattern in patterns:
            head, *rest = pattern.casefold().split("/")
            self._rests.setdefault(head, []).append(tuple(rest))

    def has(self, names: "Names", *, directory: bool = False) -> bool:
        """Tell whether a file or directory matches a pattern, or lies below a match."""
        folded = [name.casefold() for name in names]
        if not directory and folded and folded[-1] in _LINKS and folded[-1] in self._rests:
            return True
        return self._find(folded, whole=True)

    def leads(self, names: "Names") -> bool:
        """Tell whether a directory matches a pattern or leads to a match. A directory or symlink
        that gets such a name turns files below it into matches."""
        return self._find([name.casefold() for name in names], whole=False)

    def _find(self, folded: list[str], *, whole: bool) -> bool:
        tried: set[_Pattern] = set()
        for at, name in enumerate(folded):
            for rest in self._rests.get(name, ()):
                if rest in tried:
                    continue
                if _fits(rest, folded, at + 1, whole):
                    return True
                if _is_at_gap(rest, folded, at + 1):
                    tried.add(rest)  # later places were examined with it
        return False


def _is_at_gap(pattern: "_Pattern", names: list[str], at: int) -> bool:
    """Tell whether the names from `at` on match a pattern up to its `**`."""
    if "**" not in pattern:
        return False
    head = pattern[: pattern.index("**")]
    return len(names) - at >= len(head) and _fits(head, names, at, whole=True)


def _fits(pattern: "_Pattern", names: list[str], at: int, whole: bool) -> bool:
    """Tell whether the names from `at` on begin with the pattern. Unless `whole`, they may also be
    the beginning of the pattern."""
    for place, wanted in enumerate(pattern):
        if wanted == "**":
            rest = pattern[place + 1 :]
            return any(_fits(rest, names, later, whole) for later in range(at, len(names) + 1))
        if at == len(names):
            return not whole
        if wanted not in (names[at], "*"):
            return False
        at += 1
    return True
