"""`quicksand-tui`: from its arguments to an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

import click
from quicksand.errors import ConfigError, QuicksandError

from quicksand_tui import __version__
from quicksand_tui.cli.exits import MEANINGS, Exit
from quicksand_tui.cli.opening import app_options, has_terminal, open_app
from quicksand_tui.cli.output import PROGRAM, abandon_stdout, complain, explain_os_error
from quicksand_tui.cli.verbs import VERBS, Verb

COMPLETE_VARIABLE = "_QUICKSAND_TUI_COMPLETE"
WITH_COMMAND = ("run", "exec")
"""Commands whose arguments are a command of the guest."""

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Commands(click.Group):
    """The commands of the table, imported one by one as they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb.name for verb in VERBS if verb.exists]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = next((v for v in VERBS if v.name == cmd_name), None)
        return verb.load() if verb is not None and verb.exists else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            import difflib

            names = self.list_commands(ctx)
            near = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
            guess = f"; did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"there is no command {name!r}{guess}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[Verb]] = {}
        for verb in VERBS:
            if verb.exists:
                sections.setdefault(verb.section, []).append(verb)
        for title, verbs in sections.items():
            with formatter.section(title):
                formatter.write_dl([(verb.name, verb.summary) for verb in verbs])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), text) for code, text in MEANINGS.items()])


@click.group(PROGRAM, cls=Commands, context_settings=SETTINGS, invoke_without_command=True)
@click.version_option(__version__, prog_name=PROGRAM)
@app_options
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


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    _open_standard_streams()
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except OSError as error:
        # What is left in its buffer would fail again when Python ends.
        abandon_stdout()
        if error.errno == errno.EPIPE:
            return Exit.READER_GONE
        complain(explain_os_error(error))
        return Exit.FAILURE


def _open_standard_streams() -> None:
    """Put /dev/null where a standard stream is closed: else the next file or socket that is opened
    would take its place, and output would go into that."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _dispatch(argv: Sequence[str]) -> int:
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, PROGRAM, COMPLETE_VARIABLE, instruction)
    try:
        with cli.make_context(PROGRAM, list(argv)) as ctx:
            code = cli.invoke(ctx)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        code = _explain_usage(error, argv)
    except QuicksandError as error:
        complain(error)
        code = Exit.USAGE if isinstance(error, ConfigError) else Exit.FAILURE
    except (KeyboardInterrupt, click.Abort):
        code = Exit.INTERRUPTED
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else Exit.FAILURE
    return code if isinstance(code, int) else Exit.OK


def _explain_usage(error: click.ClickException, argv: Sequence[str]) -> int:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    hint = f"`{ctx.command_path if ctx is not None else PROGRAM} --help` tells more"
    if isinstance(error, click.NoSuchOption) and "--" not in argv and argv[0] in WITH_COMMAND:
        hint = f"if {error.option_name} is the command's, put -- before the command"
    complain(_sentence(error.format_message()), hint=hint)
    return Exit.USAGE


def _sentence(message: str) -> str:
    """click's message in our style: it begins small and has no full stop."""
    message = message.strip().removesuffix(".")
    return message[:1].lower() + message[1:]


def _open(options: dict[str, Any]) -> int:
    if options["screenshot"] is None and not has_terminal():
        with cli.make_context(PROGRAM, ["ps"]) as ctx:
            click.echo(cli.get_help(ctx), err=True)
        return Exit.USAGE
    return open_app(options)
