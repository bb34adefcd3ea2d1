"""The command `quicksand-tui` for click: all commands and the app's options. Each command is
imported only when it is used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import shell_complete

from quicksand_tui import __version__
from quicksand_tui.cli.click_commands import load, to_click
from quicksand_tui.cli.open_app import has_terminal, open_app
from quicksand_tui.cli.output import COMPLETE_VARIABLE, MEANINGS, PROGRAM, Exit, complain
from quicksand_tui.model.text import did_you_mean
from quicksand_tui.verbs.index import APP_OPTIONS, all_verbs, find_verb, is_verb, sections
from quicksand_tui.verbs.verb import Kind

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
        from quicksand_tui.cli.app_screenshot import take_picture  # noqa: PLC0415

        return take_picture(options)
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
