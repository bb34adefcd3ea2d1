"""Files that programs of the host run or obey without being asked: git hooks, tasks of editors,
start files of shells. A guest that writes one controls whoever works in that directory.

A pattern is the end of a path, with `/`. `*` in a name, once, matches any characters, so that `*`
is any one name; `**` is any number of names. Everything below a match belongs to it. Case is
ignored, as some file systems do.
"""

from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quicksand_smb.names import Names

    _Pattern = tuple[str, ...]

GIT: Final = (
    # gitrepository-layout(5). A lock file becomes the file; `commondir` leads to another config.
    "hooks", "config", "config.lock", "config.worktree", "config.worktree.lock", "commondir",
    # git-rebase(1), `--exec`: the rest of a rebase has commands that `--continue` runs.
    "rebase-merge",
)  # fmt: skip
"""Names in a directory of git."""

_SOURCES: Final = (
    ("gitrepository-layout(5)", (
        *(f".git/{name}" for name in GIT),
        *(f".git/modules/**/{name}" for name in GIT),
        *(f".git/worktrees/*/{name}" for name in (*GIT, "gitdir")),
        *(f".git/worktrees/*/modules/**/{name}" for name in GIT),
    )),
    ("git-config(1), FILES", (".gitconfig", ".config/git")),
    # Another system of versions: its configuration has hooks, extensions and aliases.
    ("hgrc(5), FILES", (".hg/hgrc", ".hg/hgrc-not-shared", ".hg/sharedpath", ".hgrc")),
    # Managers of hooks: git runs these, and they run the commands written here.
    ("a usual value of core.hooksPath, githooks(5)", (".githooks", ".git-hooks")),
    ("typicode.github.io/husky", (".husky", ".huskyrc", ".huskyrc.json", ".huskyrc.js")),
    ("lefthook.dev, configuration", (
        *(f"{before}lefthook{local}.{end}" for before in ("", ".", ".config/")
          for local in ("", "-local") for end in ("yml", "yaml", "toml", "json", "jsonc")),
        ".lefthook", ".lefthook-local",
    )),
    ("pre-commit.com; prek.j178.dev", (".pre-commit-config.yaml", ".pre-commit-config.yml",
                                       "prek.toml")),
    ("lint-staged, lib/configFiles.js", (
        ".lintstagedrc",
        *(f".lintstagedrc.{end}" for end in ("json", "yaml", "yml", "mjs", "mts", "js", "ts", "cjs",
                                             "cts")),
        *(f"lint-staged.config.{end}" for end in ("mjs", "mts", "js", "ts", "cjs", "cts")),
    )),
    ("github.com/sds/overcommit", (".overcommit.yml", ".local-overcommit.yml")),
    ("github.com/toplenboren/simple-git-hooks", (
        ".simple-git-hooks.json", ".simple-git-hooks.js", ".simple-git-hooks.cjs",
        "simple-git-hooks.json", "simple-git-hooks.js", "simple-git-hooks.cjs",
    )),
    # Environments that shells enter with a directory.
    ("direnv(1)", (".envrc", ".direnv")),
    ("mise.jdx.dev/configuration.html, .../environments", (
        ".mise.toml", "mise.toml", ".mise.*.toml", "mise.*.toml", ".mise",
        "mise/config.toml", "mise/config.*.toml",
        ".config/mise", ".config/mise.toml", ".config/mise.*.toml",
    )),
    ("asdf-vm.com/manage/configuration.html", (".tool-versions", ".asdfrc")),
    ("github.com/zpm-zsh/autoenv", (".autoenv.zsh",)),
    # Editors.
    ("code.visualstudio.com/docs/editor/workspaces", (
        ".vscode/tasks.json", ".vscode/settings.json", ".vscode/launch.json", ".vscode/mcp.json",
        ".vscode/extensions.json", "*.code-workspace",
    )),
    ("containers.dev, devcontainer.json", (".devcontainer", ".devcontainer.json")),
    ("jetbrains.com/help/idea", (".idea", ".fleet", ".run")),
    ("zed.dev/docs/configuring-zed", (".zed",)),
    ("docs.helix-editor.com/configuration.html", (".helix",)),
    ("vim, 'exrc'; nvim, 'exrc'", (".exrc", ".vimrc", ".gvimrc", ".nvimrc", ".nvim.lua")),
    ("emacs, Directory Variables", (".dir-locals.el", ".dir-locals-2.el")),
    # Agents: settings with commands, and their instructions.
    ("code.claude.com/docs/en/settings, .../claude-directory", (
        ".claude/settings.json", ".claude/settings.local.json", ".claude/hooks", ".claude/commands",
        ".claude/agents", ".claude/agent-memory", ".claude/skills", ".claude/rules",
        ".claude/output-styles", ".claude/workflows", "CLAUDE.md", "CLAUDE.local.md",
    )),
    ("modelcontextprotocol.io, .mcp.json", (".mcp.json",)),
    ("cursor.com/docs", (".cursor", ".cursorrules")),
    ("agents.md; zed.dev/docs/ai/rules", ("AGENTS.md", "AGENTS.override.md", "AGENT.md", ".rules")),
    ("developers.openai.com/codex", (".codex",)),
    ("geminicli.com/docs", (".gemini", "GEMINI.md")),
    ("opencode.ai/docs/config", (".opencode", "opencode.json", "opencode.jsonc")),
    ("docs.windsurf.com", (".windsurf", ".windsurfrules")),
    ("docs.github.com/en/copilot/reference/customization-cheat-sheet", (
        ".github/copilot-instructions.md", ".github/instructions", ".github/prompts",
        ".github/agents", ".github/skills", ".github/hooks", ".agents",
    )),
    ("jetbrains.com/help/junie, kiro.dev/docs, block.github.io/goose", (
        ".junie", ".kiro", ".goosehints",
    )),
    ("aider.chat/docs/config", (".aider.conf.yml",)),
    ("docs.cline.bot, docs.roocode.com, docs.continue.dev", (
        ".clinerules", ".roo", ".roorules", ".roomodes", ".continue",
    )),
    # Tools that read files beside the sources.
    ("doc.rust-lang.org/cargo/reference/config.html", (".cargo/config", ".cargo/config.toml")),
    ("docs.npmjs.com, npmrc; yarnpkg.com, pnpm.io", (".npmrc", ".yarnrc.yml", ".pnpmfile.cjs")),
    ("bazel.build/run/bazelrc", (".bazelrc",)),
    ("gdb, Auto-loading; lldb; docs.python.org, pdb", (".gdbinit", ".lldbinit", ".pdbrc")),
    ("R, ?Startup", (".Rprofile", ".Renviron")),
    # Home directories.
    ("bash(1), FILES", (
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile",
    )),
    ("zsh(1), FILES", (".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout")),
    ("fish(1)", (".config/fish",)),
    ("Desktop Application Autostart Specification", (".config/autostart",)),
    ("systemd.unit(5), environment.d(5)", (".config/systemd", ".config/environment.d")),
    ("tmux(1)", (".tmux.conf",)),
    ("Xsession(5), xinit(1)", (".xprofile", ".xinitrc", ".xsession")),
    ("sshd(8), ssh_config(5)", (".ssh/authorized_keys", ".ssh/config", ".ssh/rc")),
)  # fmt: skip
"""The patterns, and the documents which say that programs run or obey such files."""

KNOWN: Final = tuple(pattern for _, patterns in _SOURCES for pattern in patterns)
"""The patterns behind a share's `protect`. A list, not a proof."""


_LINKS: Final = frozenset({".git"})
"""Names that may be a file which points to the directory of that name (gitrepository-layout(5))."""


class Triggers:
    """A set of patterns."""

    def __init__(self, patterns: tuple[str, ...] = KNOWN) -> None:
        self._rests: dict[str, tuple[_Pattern, ...]] = {}
        """The rest of each pattern, by its first name."""
        self._starred: list[tuple[str, str, _Pattern]] = []
        """The text before and after the `*` of a first name, and the rest of its pattern."""
        for pattern in patterns:
            head, *rest = pattern.casefold().split("/")
            before, star, after = head.partition("*")
            if star:
                self._starred.append((before, after, tuple(rest)))
            else:
                self._rests[head] = (*self._rests.get(head, ()), tuple(rest))

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
            for rest in self._rests_after(name):
                if rest in tried:
                    continue
                if _fits(rest, folded, at + 1, whole):
                    return True
                if _is_at_gap(rest, folded, at + 1):
                    tried.add(rest)  # later places were examined with it
        return False

    def _rests_after(self, name: str) -> "tuple[_Pattern, ...]":
        """Return the rests of the patterns whose first name this name matches."""
        found = self._rests.get(name, ())
        for before, after, rest in self._starred:
            if name.endswith(after) and _is_between(name, before, after):
                found = (*found, rest)
        return found


def _is_name(wanted: str, name: str) -> bool:
    """Tell whether a name matches one of a pattern."""
    before, star, after = wanted.partition("*")
    if not star:
        return wanted == name
    return name.endswith(after) and _is_between(name, before, after)


def _is_between(name: str, before: str, after: str) -> bool:
    """Tell whether a name that ends with `after` begins with `before`, and both have room in it."""
    return name.startswith(before) and len(name) >= len(before) + len(after)


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
        if not _is_name(wanted, names[at]):
            return False
        at += 1
    return True
