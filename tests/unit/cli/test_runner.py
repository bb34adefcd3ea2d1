"""Signals and exit codes of asynchronous commands."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest
from quicksand.base.errors import AgentCode, AgentRefusedError, ConfigError, QemuDiedError

from quicksand_tui.cli import runner
from quicksand_tui.cli.guests.executing import starting
from quicksand_tui.cli.output import Exit
from quicksand_tui.cli.runner import Signals, run_async, run_in_sandbox
from tests.each import each


@each("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_after_its_clearing_up(number: signal.Signals) -> None:
    cleared = []

    async def main(signals: Signals) -> int:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleared.append(True)
        return 0

    assert run_async(main) == 128 + number
    assert cleared == [True]


@each("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@each("again", [False, True])
def test_a_command_in_a_guest_gets_the_signal_and_the_second_one_ends_us(
    number: signal.Signals, again: bool
) -> None:
    sent: list[str] = []
    seen = asyncio.Event()

    async def main(signals: Signals) -> int:
        def send(name: str) -> None:
            sent.append(name)
            seen.set()

        with signals.passed_on(send):
            os.kill(os.getpid(), number)
            await seen.wait()
            if again:
                os.kill(os.getpid(), number)
                await asyncio.Event().wait()
        return 7

    assert run_async(main) == (128 + number if again else 7)
    assert sent == [number.name.removeprefix("SIG")]


def test_a_command_that_does_not_heed_a_signal_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "END_S", 0.01)

    async def main(signals: Signals) -> int:
        with signals.passed_on(lambda _: None):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        return 7

    assert run_async(main) == 128 + signal.SIGTERM


@each("command", ["exec", "run"])
@each(("before", "code"), [("", -signal.SIGINT), ("SIG_IGN", Exit.USAGE)])
def test_an_interrupt_before_the_command_runs_ends_it_at_once(
    command: str, before: str, code: int
) -> None:
    """Python would lose one that comes within a callback of its imports."""
    program = (
        "import os, signal, sys\n"
        "from quicksand_tui.cli import main\n"
        f"signal.signal(signal.SIGINT, signal.{before or 'default_int_handler'})\n"
        "main.import_asyncio = lambda: os.kill(os.getpid(), signal.SIGINT)\n"
        f"raise SystemExit(main.run(['{command}', '--no-such-option']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode == code, done.stderr


def test_ignored_signals_stay_ignored() -> None:
    program = (
        "import asyncio, os, signal\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from quicksand_tui.cli.runner import run_async\n"
        "async def main(signals):\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    await asyncio.sleep(0.05)\n"
        "    return 5\n"
        "raise SystemExit(run_async(main))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 5


def test_a_failing_sandbox_has_its_own_code(capsys: pytest.CaptureFixture[str]) -> None:
    async def main(signals: Signals) -> int:
        raise QemuDiedError("QEMU ended", hint="look", log="last words\x1b[2J")

    assert run_in_sandbox(main) == Exit.SANDBOX_FAILED
    err = capsys.readouterr().err
    assert err == "quicksand-tui: QEMU ended\nlast words\\x1b[2J\nhint: look\n"


def test_a_value_that_makes_no_sense_is_the_command_lines_fault() -> None:
    async def main(signals: Signals) -> int:
        raise ConfigError("no")

    with pytest.raises(ConfigError):
        run_in_sandbox(main)


@each(
    ("message", "code", "errno", "parameter", "result"),
    [
        ('command "x" not found', "not_found", 2, "argv", Exit.NOT_FOUND),
        ('command "/etc": Permission denied', "forbidden", 13, "argv", Exit.CANNOT_RUN),
        ('command "x": Argument list too long', "io", 7, "argv", Exit.CANNOT_RUN),
        ('parameter "argv": must name a program', "bad_request", None, "argv", Exit.SANDBOX_FAILED),
        ('user "x" not found', "not_found", None, "user", Exit.SANDBOX_FAILED),
        ('cwd "/x" not found', "not_found", 2, "cwd", Exit.SANDBOX_FAILED),
    ],
)
def test_a_command_that_cannot_start_is_told_from_a_sandbox_that_fails(
    message: str,
    code: AgentCode,
    errno: int | None,
    parameter: str,
    result: Exit,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def main(signals: Signals) -> int:
        with starting():
            raise AgentRefusedError(message, code=code, errno=errno, parameter=parameter)
        return 0

    assert run_in_sandbox(main) == result
    assert message in capsys.readouterr().err
