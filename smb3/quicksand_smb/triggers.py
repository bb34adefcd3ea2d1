"""Files that programs of the host run or obey without being asked: hooks of git, tasks of editors,
start files of shells. What a guest writes there is a command to whoever works in that directory.

A pattern is the end of a path, with `/`; `*` is any one name, `**` any number of them, and what is
below a match belongs to it. Case does not count, since it does not to some file systems.
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
    # Tools that read what is beside the sources.
    ".cargo/config", ".cargo/config.toml", ".npmrc", ".yarnrc.yml", ".pnpmfile.cjs", ".bazelrc",
    ".gdbinit", ".lldbinit",
    # Home directories.
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".zlogout", ".config/fish", ".config/autostart", ".config/systemd",
    ".config/environment.d", ".tmux.conf", ".xprofile", ".xinitrc", ".xsession",
    ".ssh/authorized_keys", ".ssh/config", ".ssh/rc",
)  # fmt: skip
"""What `protect` of a share stands for."""


_LINKS: Final = frozenset({".git"})
"""What may be a file that says where the directory of that name is (gitrepository-layout(5))."""


class Triggers:
    """Patterns, and which names they are about."""

    def __init__(self, patterns: tuple[str, ...] = KNOWN) -> None:
        self._rests: dict[str, list[_Pattern]] = {}
        """What follows the first name of patterns, by that name."""
        for pattern in patterns:
            head, *rest = pattern.casefold().split("/")
            self._rests.setdefault(head, []).append(tuple(rest))

    def has(self, names: "Names", *, directory: bool = False) -> bool:
        """Whether a file, or a directory, is one of them, or below one."""
        folded = [name.casefold() for name in names]
        if not directory and folded and folded[-1] in _LINKS and folded[-1] in self._rests:
            return True
        return self._find(folded, whole=True)

    def leads(self, names: "Names") -> bool:
        """Whether a directory is one of them, or on the way to one: to give a directory, or a
        symlink, such a name makes one of what is below."""
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
                    tried.add(rest)  # what follows further on has been looked at, too
        return False


def _is_at_gap(pattern: "_Pattern", names: list[str], at: int) -> bool:
    """Whether names from `at` on fit a pattern up to its `**`."""
    if "**" not in pattern:
        return False
    head = pattern[: pattern.index("**")]
    return len(names) - at >= len(head) and _fits(head, names, at, whole=True)


def _fits(pattern: "_Pattern", names: list[str], at: int, whole: bool) -> bool:
    """Whether names from `at` on begin with the pattern, or, unless `whole`, are a beginning of
    it."""
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
