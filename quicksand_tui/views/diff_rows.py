"""The tree of paths that differ between two disks, as rows of a table. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from quicksand_tui.model.amounts import clock_text, size_text
from quicksand_tui.model.diffs import KINDS, PACKAGE_KINDS, TextDiff
from quicksand_tui.views.tables import Cell, Column, Row, filtered

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from quicksand_tui.model.diffs import ChangedPackage, ChangedPackages, ChangedPath, DiffView

FOLDED_FROM = 20
"""The number of paths, changed in one way, from which their directory is folded at first."""

PACKAGE_SIGNS = {"A": ("+", ""), "M": ("@", "~"), "D": ("-", "")}
"""The sign that colours a package's line, as in a text, and the beginning of the line."""
ROLES = {"A": "success", "M": "accent", "D": "error", "T": "warning"}
LINES_WIDTH, SIZE_WIDTH = 9, 5


@dataclass(slots=True)
class Branch:
    """A directory on the way to a changed path, and the sums of all below it."""

    key: str
    """Its path, as the engine has it."""
    name: str
    change: ChangedPath | None = None
    """The change of the directory itself."""
    branches: list[Branch] = field(default_factory=list)
    leaves: list[ChangedPath] = field(default_factory=list)
    letters: dict[str, int] = field(default_factory=dict)
    size: int = 0
    added: int = 0
    removed: int = 0

    @property
    def counts(self) -> str:
        """The numbers of paths that changed in it and below it, by kind of change."""
        return " ".join(f"{letter} {n}" for letter in KINDS if (n := self.letters.get(letter)))

    @property
    def is_empty(self) -> bool:
        """Whether nothing below it changed."""
        return not self.branches and not self.leaves

    @property
    def is_uniform(self) -> bool:
        """Whether much changed below it, all in one way."""
        return len(self.letters) == 1 and sum(self.letters.values()) > FOLDED_FROM


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of the tree."""

    depth: int
    branch: Branch | None = None
    leaf: ChangedPath | None = None
    packages: ChangedPackages | None = None
    """The differences in a database of packages, in a line of its own."""
    is_folded: bool = False

    @property
    def key(self) -> str:
        if self.packages is not None:
            return f"p{self.packages.path}"
        # A directory whose place a file has taken has both.
        return f"d{self.branch.key}" if self.branch else f"f{self.leaf.path if self.leaf else ''}"

    @property
    def path(self) -> str:
        """The path to ask the engine for."""
        if self.packages is not None:
            return self.packages.path
        return self.branch.key if self.branch else self.leaf.path if self.leaf else "/"


def grow(paths: Sequence[ChangedPath], query: str = "") -> Branch:
    """Returns the tree of all paths that match a query. Takes a second for half a million."""
    root = Branch("/", "/")
    known: dict[tuple[str, ...], Branch] = {(): root}
    for found in filtered(paths, query, _text, _FIELDS):
        if found.is_directory:
            _branch_of(found.path, found.names, known).change = found
            where = found.names
        else:
            where = found.names[:-1]
            _branch_of(found.path.rpartition("/")[0] or "/", where, known).leaves.append(found)
        for depth in range(len(where) + 1):
            branch = known[where[:depth]]
            branch.letters[found.letter] = branch.letters.get(found.letter, 0) + 1
            branch.size += found.size or 0
            branch.added += found.added or 0
            branch.removed += found.removed or 0
    return root


def _branch_of(path: str, names: tuple[str, ...], known: dict[tuple[str, ...], Branch]) -> Branch:
    found = known.get(names)
    if found is None:
        above = _branch_of(path.rpartition("/")[0] or "/", names[:-1], known)
        found = known[names] = Branch(path, names[-1])
        above.branches.append(found)
    return found


def _text(found: ChangedPath) -> str:
    return "/".join(("", *found.names)).lower()


_FIELDS = {"kind": lambda found: found.letter, "name": lambda found: (found.names or ("/",))[-1]}


def folded_at_first(root: Branch) -> frozenset[str]:
    """Returns the directories to fold, so that rare changes are seen."""
    folded = set[str]()
    waiting = list(root.branches)
    while waiting:
        branch = _joined(waiting.pop())
        if branch.is_uniform:
            folded.add(branch.key)
        else:
            waiting += branch.branches
    return frozenset(folded)


def tree_lines(root: Branch, folded: Collection[str]) -> Iterator[DiffLine]:
    """Yields the lines of the tree, without those below folded directories. Directories that
    contain only one directory share a line with it."""
    waiting: list[DiffLine] = []

    def add(branch: Branch, depth: int) -> None:
        for leaf in reversed(branch.leaves):
            waiting.append(DiffLine(depth, leaf=leaf))
        for below in reversed(branch.branches):
            waiting.append(DiffLine(depth, branch=_joined(below)))

    if root.change is not None:
        yield DiffLine(0, leaf=root.change)
    add(root, 0)
    while waiting:
        line = waiting.pop()
        if line.branch is None:
            yield line
            continue
        is_folded = line.branch.key in folded
        yield DiffLine(line.depth, branch=line.branch, is_folded=is_folded)
        if not is_folded:
            add(line.branch, line.depth + 1)


def _joined(branch: Branch) -> Branch:
    """Returns a directory joined with the only one in it, and so on."""
    name = branch.name
    while len(branch.branches) == 1 and not branch.leaves and branch.change is None:
        branch = branch.branches[0]
        name += f"/{branch.name}"
    if name == branch.name:
        return branch
    return Branch(
        branch.key, name, branch.change, branch.branches, branch.leaves, branch.letters,
        branch.size, branch.added, branch.removed,
    )  # fmt: skip


def package_lines(databases: Sequence[ChangedPackages], query: str) -> Iterator[DiffLine]:
    """Yields a line for each database of packages in which some match a query."""
    for database in databases:
        found = filtered(database.packages, query, _package_text, _PACKAGE_FIELDS)
        if found:
            yield DiffLine(0, packages=replace(database, packages=tuple(found)))


def _package_text(package: ChangedPackage) -> str:
    return f"packages {package.name} {package.versions}".lower()


_PACKAGE_FIELDS = {"kind": lambda found: found.letter, "name": lambda found: found.name}


def packages_text(changed: ChangedPackages) -> TextDiff:
    """Returns the text about packages: a line for each."""
    lines = [("@", _package_counts(changed))]
    for package in changed.packages:
        sign, mark = PACKAGE_SIGNS[package.letter]
        lines.append((sign, f"{mark}{package.name} {package.versions}"))
    return TextDiff(lines=tuple(lines))


def _package_letters(changed: ChangedPackages) -> str:
    letters = [package.letter for package in changed.packages]
    return " ".join(f"{k} {n}" for k in PACKAGE_KINDS if (n := letters.count(k)))


def _package_counts(changed: ChangedPackages) -> str:
    letters = [package.letter for package in changed.packages]
    counts = [f"{n} {word}" for k, word in PACKAGE_KINDS.items() if (n := letters.count(k))]
    return " · ".join(counts)


def plan_diff_columns(width: int) -> tuple[Column, ...]:
    """Returns the columns that fit into ``width`` cells; the path takes the rest."""
    columns = [Column("size", "Size", SIZE_WIDTH, right=True)]
    if width >= 40:
        columns.insert(0, Column("lines", "Lines", LINES_WIDTH, right=True))
    left = width - sum(column.width + 2 for column in columns) - 2
    return (Column("path", "Path", max(8, left)), *columns)


def diff_row(line: DiffLine) -> Row:
    indent = "  " * min(line.depth, 12)
    lines, size = (0, 0), 0
    if line.packages is not None:
        path = Cell("packages", "accent", _package_letters(line.packages))
    elif (branch := line.branch) is not None:
        glyph = "▸" if line.is_folded else "▾"
        own = branch.change
        slash = "/" if line.depth == 0 else ""
        if branch.is_empty and own is not None:
            path = Cell(f"{indent}{own.letter} {slash}{branch.name}/", _role(own), own.remark)
        else:
            text = f"{indent}{glyph} {slash}{branch.name}"
            path = Cell(text, _role(own), branch.counts, gives_way=True)
        lines, size = (branch.added, branch.removed), branch.size
    else:
        leaf = line.leaf
        assert leaf is not None
        name = leaf.names[-1] if leaf.names else "/"
        path = Cell(f"{indent}{leaf.letter} {name}", ROLES[leaf.letter], leaf.remark)
        lines, size = (leaf.added or 0, leaf.removed or 0), leaf.size or 0
    return Row(
        line.key,
        {
            "path": path,
            "lines": Cell("+{} −{}".format(*lines) if any(lines) else "", "muted"),
            "size": Cell(size_text(size) if size else "", "muted"),
        },
    )


def branch_text(branch: Branch) -> str:
    """Returns the text about a directory, which has no lines of its own."""
    own = branch.change
    how = ""
    if own is not None:
        how = f"It was {KINDS[own.letter]}{f' ({own.remark})' if own.remark else ''}. "
    below = " · ".join(f"{n} {KINDS[k]}" for k in KINDS if (n := branch.letters.get(k)))
    return f"{how}{below}"


def _role(change: ChangedPath | None) -> str:
    return ROLES[change.letter] if change is not None and change.letter in "AD" else ""


def freshness_text(view: DiffView) -> str:
    """Returns a note about the running sandbox whose disk was compared: when it was read, and
    whether the guest had written out its memory; "" if nothing ran."""
    if not view.is_live:
        return ""
    when = f"as of {clock_text(view.read)}"
    return when if view.is_synced else f"{when}, without what the guest still holds in memory"
