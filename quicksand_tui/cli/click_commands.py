"""The command line as click reads it: words with their values and completion, the commands, made of
verbs (`quicksand_tui.verbs`) and imported when they are used, and the app's options."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, shell_complete
from quicksand.base.errors import ConfigError

from quicksand_tui import __version__
from quicksand_tui.cli import lazy_commands as lazy
from quicksand_tui.cli.host_choice import has_terminal, open_app
from quicksand_tui.cli.output import COMPLETE_VARIABLE, MEANINGS, PROGRAM, Exit, complain
from quicksand_tui.model.remedy_words import hint_of
from quicksand_tui.model.text import did_you_mean
from quicksand_tui.verbs.index import APP_OPTIONS, all_verbs, find_verb, is_verb, sections
from quicksand_tui.verbs.verb import AnyVerb, Kind, Parameter

if TYPE_CHECKING:
    from quicksand.records.machine_options import MachineOption
    from quicksand.records.mount import Mount

LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>[^:\[\]]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """Returns the host and the port of an address to listen at; a port alone is one of the
    loopback. Raises ConfigError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(f"{text!r} is no address", hint="as in 2222, 0.0.0.0:2222 or [::]:2222")
    return (match["host"] or LOOPBACK).strip("[]"), int(match["port"])


_CONTROL = "ctrl-"


def parse_keys(text: str) -> bytes:
    """Returns the bytes of a sequence of keys such as "ctrl-],d". Raises ConfigError.

    >>> parse_keys("ctrl-],d")
    b'\\x1dd'
    """
    codes = bytearray()
    for key in text.split(","):
        name = key.strip()
        if name.lower().startswith(_CONTROL) and len(name) == len(_CONTROL) + 1:
            code = ord(name[-1].upper()) ^ 0x40
        else:
            code = ord(name) if len(name) == 1 else -1
        if not 0 <= code < 0x80 or (len(name) > 1 and code >= 0x20):
            raise ConfigError(
                f"{key!r} in the keys {text!r} is no key",
                hint='one character or ctrl- and one of a-z @ [ ] \\ ^ _, as in "ctrl-],d"',
            )
        codes.append(code)
    return bytes(codes)


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def parse_env(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Returns environment variables for the guest by their names. A name without a value takes the
    value that it has here, if any. Raises click.BadParameter."""
    found = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise click.BadParameter(f"{text!r} does not begin with a variable's name")
        if equals:
            found[name] = value
        elif name in os.environ:
            found[name] = os.environ[name]
    return found


ORDER = "the directory of this host comes first"


def read_mount(word: str) -> Mount:
    """Reads HOST:GUEST[:ro|:protect]. Raises ConfigError, with a hint at the probable meaning."""
    try:
        return lazy.parse_mount(word)
    except ConfigError as error:
        raise ConfigError(error.words, hint=_meant(word) or error.advice) from None


def _meant(word: str) -> str:
    """Returns the probable meaning of a word that is no mount; "" if that is unclear."""
    host, colon, guest = word.partition(":")
    guest, _, mode = guest.partition(":")
    mode = f":{mode}" if mode else ""
    if not colon:
        absolute = os.path.abspath(host)  # noqa: PTH100 - a text to be shown
        return f"say where it is to be in the sandbox, as in {host}:/mnt/{Path(absolute).name}"
    if not guest:
        return ""
    if is_directory(guest) and host.startswith("/") and not is_directory(host):
        return f"{ORDER}: {guest}:{host}{mode}"
    if not guest.startswith("/"):
        return f"the path in the sandbox must be absolute: {host}:/{guest.removeprefix('./')}{mode}"
    return ""


def is_directory(path: str) -> bool:
    try:
        return Path(path).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):
        return False


Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

COMPLETING = "quicksand_tui.cli.completing"

COMPLETERS: Mapping[Kind, str] = {
    Kind.SANDBOX: "complete_sandboxes",
    Kind.CHECKPOINT: "complete_tags",
    Kind.TARGET: "complete_targets",
    Kind.IMAGE: "complete_images",
    Kind.STORED: "complete_stored",
    Kind.RECIPE: "complete_recipes",
    Kind.PACKAGE: "complete_packages",
    Kind.INSTALLED: "complete_installed",
    Kind.SOURCE: "complete_images",
    Kind.SAVE: "complete_saves",
    Kind.EXPORTED: "complete_exported",
    Kind.TRASHED: "complete_all_trash",
    Kind.TRASHED_SAVE: "complete_trash",
    Kind.COPIED: "complete_copied",
    Kind.HOST: "complete_hosts",
    Kind.MOUNT: "complete_mount",
    Kind.MOUNTED: "complete_mounted",
}
"""Functions of `COMPLETING`, which is imported when a shell asks for words."""


def completer_of(kind: Kind, own: str = "") -> Completer | None:
    """Returns the function that completes values of a kind, or the parameter's ``own``
    (`Parameter.completer`); None if there is none."""
    if kind not in COMPLETERS and not own:
        return None
    module, _, function = (own or f"{COMPLETING}:{COMPLETERS[kind]}").partition(":")

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        found: Completer = getattr(import_module(module), function)
        return found(ctx, param, incomplete)

    return complete


TYPES: Mapping[Kind, Callable[[Parameter], click.ParamType[Any]]] = {
    Kind.FILE: lambda _: click.Path(dir_okay=False, path_type=Path),
    Kind.OWN_FILE: lambda _: click.Path(dir_okay=False, path_type=Path),
    Kind.STREAM: lambda _: click.Path(allow_dash=True),
    Kind.DIRECTORY: lambda _: click.Path(file_okay=False, path_type=Path),
    Kind.COUNT: lambda found: (
        click.INT if found.least is None else click.IntRange(int(found.least), found.limit)
    ),
    Kind.NUMBER: lambda found: click.FloatRange(found.least, min_open=found.above_least),
    Kind.CHOICE: lambda found: click.Choice(found.all_choices),
    Kind.ARGV: lambda _: click.UNPROCESSED,
}
CALLBACKS = {Kind.ENV: parse_env}

_made: dict[str, click.Command] = {}
"""The commands that are functions, by the names of their verbs, as far as their modules are
imported. A verb and its parts are in one module."""


def command_of(
    name: str, *, with_negatives: bool = False
) -> Callable[[Callable[..., Any]], click.Command]:
    """Makes a function the command of the verb ``name``, with its docstring as the help, unless the
    verb has one. ``with_negatives`` gives it words that begin with - and are no options; it refuses
    those that are no numbers itself.

    The function gets the verb's parameters by their names. Options that click's decorators add
    below this one take the place of the parameter of `Kind.MACHINE`. Raises LookupError for a verb
    that does not exist.
    """
    verb = find_verb(name)

    def make(function: Callable[..., Any]) -> click.Command:
        made = make_command(verb, function, function.__doc__ or verb.help)
        made.ignore_unknown_options = with_negatives
        _made[name] = made
        return made

    return make


def make_command(verb: AnyVerb, function: Callable[..., Any], text: str) -> click.Command:
    """Makes a command that calls a function with the typed values; ``text`` is its help."""
    below: list[click.Parameter] = list(reversed(getattr(function, "__click_params__", [])))
    function.__dict__.pop("__click_params__", None)
    params: list[click.Parameter] = []
    for found in verb.parameters:
        params += below if found.kind is Kind.MACHINE else [to_click(found)]
    return _class_of(verb)(
        verb.name.rpartition(" ")[2],
        params=params,
        callback=function,
        help=text,
        context_settings={"allow_interspersed_args": False} if verb.takes_rest else {},
    )


def load(verb: AnyVerb) -> click.Command:
    """Returns the command of a verb, and imports its module."""
    first = find_verb(verb.name.partition(" ")[0])
    if first.module:
        import_module(first.module, "quicksand_tui.cli")
    if (made := _made.get(verb.name)) is not None:
        return made
    from quicksand_tui.cli.carrying import carry_out  # noqa: PLC0415

    return make_command(verb, lambda **given: carry_out(verb, given), verb.help)


def is_carried(verb: AnyVerb) -> bool:
    """Returns whether the command of a verb, which is loaded, is that of `cli.carrying`."""
    return verb.name not in _made


def to_click(found: Parameter) -> click.Parameter:
    """Makes an argument or an option of click from the record of a parameter."""
    given: dict[str, Any] = {}
    if found.default is not None or found.kind is Kind.SWITCH:
        given["default"] = found.default
    if (make_type := TYPES.get(found.kind)) is not None:
        given["type"] = make_type(found)
    if (callback := CALLBACKS.get(found.kind)) is not None:
        given["callback"] = callback
    given["metavar"] = found.metavar or None
    given["shell_complete"] = completer_of(found.kind, found.completer)
    if not found.flags:
        nargs = -1 if found.repeatable else 1
        return click.Argument([found.name], required=found.required, nargs=nargs, **given)
    if found.is_flag:
        given["is_flag"] = True
    if found.shows_default:
        given["show_default"] = True
    if found.required:
        given["required"] = True
    names = [found.name, *found.flags]
    return click.Option(names, help=found.help_text, multiple=found.repeatable, **given)


def _class_of(verb: AnyVerb) -> Callable[..., click.Command]:
    if not verb.parts:
        return click.Command
    return _Group if verb.subject is None else _CommandWithParts


class _Group(click.Group):
    """A verb without a subject that does something by itself, and other things with a second word:
    ``images``, ``images rm``."""

    def __init__(self, name: str, **more: Any) -> None:
        super().__init__(name, invoke_without_command=True, **more)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_parts_of(self))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return part_of(self, cmd_name)


class _CommandWithParts(click.Command):
    """A verb whose first word is either the name of a part, as in ``checkpoint rm NAME``, or its
    first argument, as in ``checkpoint NAME``."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args and (part := part_of(self, args[0])) is not None:
            return part.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def part_of(command: click.Command, word: str) -> click.Command | None:
    """Returns the command of a verb's part, by its second word; None if there is none."""
    part = _parts_of(command).get(word)
    return load(part) if part is not None else None


def _parts_of(command: click.Command) -> dict[str, AnyVerb]:
    """Returns a verb's parts by their second words."""
    assert command.name is not None
    return {part.name.rpartition(" ")[2]: part for part in find_verb(command.name).parts}


MOUNTS = "mounts"
"""The keyword of the option whose value may be completed, and misunderstood, as that of `mount`."""


class _Choice(click.Choice[str]):
    """A choice of words. Dashes are taken for their underscores, as people write them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(str(value).replace("-", "_"), param, ctx)


def machine_options(*, but: Collection[str] = ()) -> Decorator:
    """Adds all options of a machine except those with the keywords ``but``. The options that are
    given arrive in one dict ``machine``, by the keywords of SandboxConfig."""
    records = [
        record for record in lazy.options_of(lazy.SandboxConfig) if record.keyword not in but
    ]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def collected(**values: Any) -> Any:
            given = {record.keyword: values.pop(record.keyword) for record in records}
            machine = {key: value for key, value in given.items() if value is not None}
            return function(machine=machine, **values)

        wrapped: Callable[..., Any] = collected
        for record in reversed(records):
            wrapped = _click_option(record)(wrapped)
        return wrapped

    return decorate


def _click_option(record: MachineOption) -> Decorator:
    is_mounts = record.keyword == MOUNTS
    read_one = read_mount if is_mounts else record.read

    def read(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        """Returns None for an option that is not given, so that a save's own value is used."""
        if value is None or value == ():
            return None
        if record.is_switch:
            return value
        try:
            return read_one(value) if record.split is None else [*map(read_one, value)]
        except ConfigError as error:
            hint = f"\n{hint_of(error)}" if is_mounts and error.hint else ""
            raise click.BadParameter(f"{error}{hint}") from None

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [
            CompletionItem(word, help=note)
            for word, note in record.choices.items()
            if word.startswith(incomplete.replace("-", "_"))
        ]

    more: dict[str, Any] = {}
    if record.metavar:
        more["metavar"] = record.metavar
    elif not record.is_switch:
        more["type"] = _Choice([*map(str, record.choices)])
    return click.option(
        *record.flags_shown,
        record.keyword,
        multiple=record.split is not None,
        default=None,
        callback=read,
        help=record.help,
        shell_complete=completer_of(Kind.MOUNT) if is_mounts else complete,
        **more,
    )


SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Commands(click.Group):
    """The commands of all verbs, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb.name for verb in all_verbs()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load(find_verb(cmd_name)) if is_verb(cmd_name) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            near = did_you_mean(name, self.list_commands(ctx), cutoff=0.5)
            raise click.UsageError(f"there is no command {name!r}{near}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, verbs in sections().items():
            with formatter.section(title):
                formatter.write_dl([(verb.name, verb.summary) for verb in verbs])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), text) for code, text in MEANINGS.items()])


@click.group(
    PROGRAM,
    cls=Commands,
    context_settings=SETTINGS,
    invoke_without_command=True,
    params=[to_click(found) for found in APP_OPTIONS],
)
@click.version_option(__version__, prog_name=PROGRAM)
@click.pass_context
def cli(ctx: click.Context, /, **options: Any) -> int | None:
    """Sandboxes that are real Linux VMs: no root, no daemon, no Docker.

    Without a command, on a terminal, this opens the app. Everything that the app does is a
    command too; `COMMAND --help` tells more.
    """
    if ctx.invoked_subcommand is None:
        return _open(options)
    for name, value in options.items():
        if value:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} is for the app, not for {ctx.invoked_subcommand}")
    return None


def invoke(argv: Sequence[str]) -> int:
    """Runs one command line and returns its exit code. Raises what the command raises, except
    click's exceptions, which it reports."""
    try:
        with cli.make_context(PROGRAM, list(argv)) as ctx:
            code = cli.invoke(ctx)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        code = explain_usage(error, argv)
    except click.Abort:
        code = Exit.INTERRUPTED
    return code if isinstance(code, int) else Exit.OK


def complete() -> int:
    """Answers a shell that completes a command line; returns the exit code."""
    return shell_complete(cli, {}, PROGRAM, COMPLETE_VARIABLE, os.environ[COMPLETE_VARIABLE])


def explain_usage(error: click.ClickException, argv: Sequence[str]) -> int:
    """Reports the fault of a command line; returns the exit code."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    hint = f"`{ctx.command_path if ctx is not None else PROGRAM} --help` tells more"
    if isinstance(error, click.NoSuchOption) and "--" not in argv and _is_with_command(argv[0]):
        hint = f"if {error.option_name} is the command's, put -- before the command"
    complain(_sentence(error.format_message()), hint=hint)
    return Exit.USAGE


def _is_with_command(name: str) -> bool:
    """Whether the arguments of a verb are a command for the guest."""
    parameters = find_verb(name).parameters if is_verb(name) else ()
    return any(found.kind is Kind.ARGV for found in parameters)


def _sentence(message: str) -> str:
    """Returns click's message in our style: with a small first letter and no full stop."""
    message = message.strip().removesuffix(".")
    return message[:1].lower() + message[1:]


def _open(options: dict[str, Any]) -> int:
    """Opens the app, or takes a picture of it; returns the exit code."""
    if options["screenshot"] is not None:
        return _take_picture(options)
    if not has_terminal():
        with cli.make_context(PROGRAM, ["ps"]) as ctx:
            click.echo(cli.get_help(ctx), err=True)
        return Exit.USAGE
    for name in ("screen", "size"):
        if options[name] is not None:
            raise click.UsageError(f"--{name} is of a picture; say where: --screenshot FILE")
    return open_app(
        theme=options["theme"] or "",
        ascii_glyphs=options["ascii"],
        read_only=options["read_only"],
    )


def _take_picture(options: dict[str, Any]) -> int:
    """Takes the picture that the app's options ask for; returns the exit code. Raises
    click.UsageError."""
    from quicksand_tui.ui.app_pictures import ScreenshotError, take  # noqa: PLC0415
    from quicksand_tui.ui.shots import DEFAULT_SIZE, ShotSpec, parse_screen, parse_size  # noqa: PLC0415

    try:
        screen, sandbox = parse_screen(options["screen"] or "main")
        size = parse_size(options["size"]) if options["size"] is not None else DEFAULT_SIZE
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    spec = ShotSpec(
        screen=screen,
        sandbox=sandbox,
        size=size,
        theme=options["theme"] or "",
        ascii_glyphs=options["ascii"],
    )
    try:
        take(options["screenshot"], spec)
    except ScreenshotError as error:
        complain(error)
        return Exit.FAILURE
    return Exit.OK
