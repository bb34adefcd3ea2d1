"""Reads a command line for another machine: its files and directories, and its need of our
streams."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from quicksand.base.errors import PathError

from quicksand_tui.cli.click_commands import SETTINGS, load, parse_env, part_of
from quicksand_tui.verbs.index import find_verb, is_verb
from quicksand_tui.verbs.verb import AnyVerb, Kind, Parameter

WITH_US = frozenset(
    {"run", "exec", "shell", "ssh", "ssh-gateway", "view", "record", "demo", "benchmark"}
)
"""Commands that are meant to end with a connection, as with a terminal that is closed."""

DETACH = "detach"
MOUNTS = "mounts"
"""The keyword of `run`'s option for mounts."""

STREAM = "-"
FAR_PATHS = frozenset({Kind.DIRECTORY, Kind.MOUNT, Kind.OWN_FILE})
"""Parameters that name a directory or a file of the machine that carries the command out."""


WRITTEN = frozenset(
    {("screenshot", "file"), ("record", "file"), ("snapshot", "file"), ("export", "file")}
)
"""Commands and their parameters that name a file to be written; it is fetched."""
PICTURES = frozenset({("screenshot", "file"), ("record", "file")})
"""Those of them that others may read, as here; the others hold contents of a sandbox's disk."""
READ = frozenset({("import", "file"), ("info", "file"), ("ssh-gateway", "keys")})
"""Commands and their parameters that name a file to be read; it is sent."""
FILES = frozenset({Kind.FILE, Kind.STREAM})
MAYBE_FILES = {
    Kind.SOURCE: (".quicksand", ".qcow2"),
    Kind.RECIPE: (".toml",),
    Kind.PACKAGE: (".whl",),
}
"""Parameters that name a file to be read if the word looks like one: ends so, and is there."""
ARCHIVES = frozenset({("images build", "from_oci"), ("install", "sources")})
"""Commands and their parameters that may name a file of any name, if it is there."""
PATHS = ("./", "../")
"""Beginnings of words for files of this machine."""


class LocalFile(NamedTuple):
    """A word that names a file of this machine."""

    word: str
    """The word as it was written."""
    is_written: bool
    mode: int = 0o600
    """The permissions of a file that is written."""

    @property
    def path(self) -> Path:
        return Path(self.word)

    @property
    def name(self) -> str:
        """Its name at the other machine."""
        name = self.path.name
        return (
            name if name.isprintable() and not name.startswith("-") else f"file{self.path.suffix}"
        )


class Line(NamedTuple):
    """A command line for another machine."""

    argv: tuple[str | LocalFile, ...]
    stdin: bool
    """Whether it reads its stdin without being asked to by a terminal."""
    changes: bool
    """Whether a break of the connection leaves it unknown what was done."""
    in_guest: bool
    """Whether its exit code is that of a command in a guest."""
    values: Mapping[str, str]
    """The values of the variables that are passed on by their names."""
    asks_help: bool = False
    """Whether it only asks for the command's help, which is here."""


class Given(NamedTuple):
    """A parameter, and the value that the user gave for it."""

    param: click.Parameter
    value: Any

    @property
    def name(self) -> str:
        return self.param.name or ""

    @property
    def words(self) -> list[str]:
        """Its values."""
        return [self.value] if isinstance(self.value, str) else list(self.value)


def read_line(argv: Sequence[str]) -> Line:
    """Reads a command line, which names a command. Raises click.UsageError for a wrong one."""
    command, record, words, rest = find_command(argv)
    settings = {**SETTINGS, **command.context_settings}
    with click.Context(command, info_name=" ".join(("quicksand-tui", *words)), **settings) as ctx:
        values, _, order = command.make_parser(ctx).parse_args(args=list(rest))
        given = [
            Given(param, values[param.name])
            for param in dict.fromkeys(order)
            if isinstance(values.get(param.name or ""), str | bool | list | tuple)
        ]
        helping = set(command.get_help_option_names(ctx))
        options: list[str | LocalFile] = []
        arguments: list[str | LocalFile] = []
        for one in given:
            if not helping.isdisjoint(one.param.opts):
                return Line(
                    (), stdin=False, changes=False, in_guest=False, values={}, asks_help=True
                )
            target = options if isinstance(one.param, click.Option) else arguments
            target += _written(ctx, one, record)
    replaces = any(one.name == "replace" for one in given)
    if any(found.name == "replace" for found in record.parameters) and not replaces:
        _require_new([*options, *arguments])
    names = {one.name for one in given}
    stdin = "interactive" in names or _reads_stdin(given, record)
    return Line(
        argv=(*words, *options, *(["--", *arguments] if arguments else [])),
        stdin=stdin,
        changes=not (record.only_reads(names) or (record.name in WITH_US and DETACH not in names)),
        in_guest=record.name in ("run", "exec", "shell"),
        values=_values(given, record),
    )


def find_command(argv: Sequence[str]) -> tuple[click.Command, AnyVerb, list[str], Sequence[str]]:
    """Returns the command, its record, its own words, and the others. Raises click.UsageError."""
    record = find_verb(argv[0]) if is_verb(argv[0]) else None
    if record is None:
        raise click.UsageError(f"there is no command {argv[0]!r}")
    command = load(record)
    if len(argv) > 1 and record.parts and (part := part_of(command, argv[1])) is not None:
        return part, find_verb(f"{argv[0]} {argv[1]}"), list(argv[:2]), argv[2:]
    return command, record, [argv[0]], argv[1:]


def _kind(record: AnyVerb, name: str) -> Kind:
    found: Mapping[str, Parameter] = {one.name: one for one in record.parameters}
    if name in found:
        return found[name].kind
    return Kind.MOUNT if name == MOUNTS else Kind.TEXT


def _written(ctx: click.Context, given: Given, record: AnyVerb) -> Iterator[str | LocalFile]:
    """Yields the words of a parameter for the other machine."""
    param = given.param
    kind = _kind(record, given.name)
    if isinstance(param, click.Option) and param.is_flag:
        yield param.opts[0] if given.value else param.secondary_opts[0]
        return
    words = given.words
    if kind in FAR_PATHS:
        for word in words:
            _require_absolute(ctx, param, word)
    if kind is Kind.ENV:
        # A name without a value passes on our value, not the other machine's. It is not written
        # here: there, all users could read it.
        known = parse_env(ctx, param, tuple(words))
        words = [word for word in words if word.partition("=")[0] in known]
    for word in words:
        if isinstance(param, click.Option):
            yield param.opts[0]
        yield _as_file(word, kind, (record.name, given.name))


def _as_file(word: str, kind: Kind, what: tuple[str, str]) -> str | LocalFile:
    """Returns a word, or the file of this machine that it names."""
    if kind in FILES and word != STREAM:
        return LocalFile(word, what in WRITTEN, 0o644 if what in PICTURES else 0o600)
    path = Path(word)
    is_archive = what in ARCHIVES
    may_be_file = is_archive or path.suffix in MAYBE_FILES.get(kind, ())
    if may_be_file and path.is_file():
        return LocalFile(word, False)
    if (is_archive or kind in MAYBE_FILES) and word.startswith(PATHS):
        raise click.UsageError(f"{word!r} is no file that can be sent to the other machine")
    return word


def _require_new(words: Sequence[str | LocalFile]) -> None:
    """Raises PathError for a file that would be replaced."""
    for word in words:
        if isinstance(word, LocalFile) and word.is_written and word.path.exists():
            raise PathError(f"{word.path} is there already", hint="choose another name")


def files_of(line: Line) -> list[LocalFile]:
    """Returns the files of this machine in a line. Raises click.UsageError for two that would have
    the same name at the other machine."""
    found = [word for word in line.argv if isinstance(word, LocalFile)]
    names = [file.name for file in found]
    for file in found:
        if names.count(file.name) > 1:
            raise click.UsageError(f"two files are called {file.name!r}: name one in a call")
    return found


def words_of(line: Line) -> list[str]:
    """Returns the words for the other machine, where files are in the working directory."""
    return [f"./{word.name}" if isinstance(word, LocalFile) else word for word in line.argv]


def _require_absolute(ctx: click.Context, param: click.Parameter, word: str) -> None:
    if not word.startswith(("/", "~")):
        raise click.BadParameter(
            f"{word!r} would be a directory of the other machine: write its whole path there",
            ctx,
            param,
        )


def _reads_stdin(given: list[Given], record: AnyVerb) -> bool:
    """Returns whether a parameter says that input comes from stdin."""
    kinds = (Kind.STREAM, Kind.COPIED, Kind.TEXT)
    return any(
        STREAM in one.words
        for one in given
        if not isinstance(one.value, bool)
        and _kind(record, one.name) in kinds
        and (record.name, one.name) not in WRITTEN
    )


def _values(given: list[Given], record: AnyVerb) -> dict[str, str]:
    """Returns our values of the variables that are given by their names alone."""
    return {
        word: os.environ[word]
        for one in given
        if _kind(record, one.name) is Kind.ENV
        for word in one.words
        if word in os.environ
    }


def terminal_env() -> dict[str, str]:
    """Returns the variables that say how our terminal shows text."""
    wanted = ("TERM", "COLORTERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "NO_COLOR", "LANG")
    return {
        name: value[:256]
        for name, value in os.environ.items()
        if (name in wanted or (name.startswith("LC_") and name[3:].isalpha() and name.isupper()))
        and value.isprintable()
    }
