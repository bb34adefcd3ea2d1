"""The ends of commands, as another process reads them."""

from __future__ import annotations

from pathlib import Path

from quicksand.base.effort import LOG_MAX
from quicksand.records.command_log import COMMAND_MAX, CommandLogReader, note_command


def note(log: Path, command: str | list[str], code: int = 0) -> None:
    note_command(log, command, exit_code=code, seconds=1.5, timed_out=False)


def test_each_end_is_read_once(tmp_path: Path) -> None:
    log = tmp_path / "commands.log"
    reader = CommandLogReader(log)
    assert reader.read_new() == []
    note(log, "make")
    note(log, ["ls", "-l"], 2)
    first, second = reader.read_new()
    assert (first.command, first.exit_code, first.seconds) == ("make", 0, 1.5)
    assert (second.command, second.exit_code, second.timed_out) == ("ls -l", 2, False)
    assert reader.read_new() == []
    note(log, "true")
    assert [end.command for end in reader.read_new()] == ["true"]


def test_none_is_lost_or_told_twice_when_the_log_begins_anew(tmp_path: Path) -> None:
    log = tmp_path / "commands.log"
    reader, seen, count = CommandLogReader(log), [], 0
    while not log.with_name("commands.log.1").exists() or count % 100:
        note(log, f"{count} {'x' * 400}")
        count += 1
        if count % 50 == 0:
            seen += [end.command.split()[0] for end in reader.read_new()]
    seen += [end.command.split()[0] for end in reader.read_new()]
    assert seen == [str(n) for n in range(count)]
    assert log.stat().st_size <= LOG_MAX


def test_a_log_of_the_next_run_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "commands.log"
    reader = CommandLogReader(log)
    note(log, "a long command of the run before")
    assert len(reader.read_new()) == 1
    log.unlink()
    note(log, "b")
    assert [end.command for end in reader.read_new()] == ["b"]


def test_what_is_no_end_is_left_out_and_a_half_line_waits(tmp_path: Path) -> None:
    log = tmp_path / "commands.log"
    log.write_bytes(b'\xff\nnull\n[1]\n{"a": 2}\n[1.0, "x", "y", 2, false]\n[5.0, "ok", 0, 1')
    reader = CommandLogReader(log)
    assert reader.read_new() == []
    with log.open("ab") as file:
        file.write(b".5, true]\n")
    (end,) = reader.read_new()
    assert (end.command, end.timed_out) == ("ok", True)


def test_a_long_command_is_cut_and_a_missing_place_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "commands.log"
    note(log, "\udcff" + "x" * 10_000)
    (end,) = CommandLogReader(log).read_new()
    assert len(end.command) == COMMAND_MAX
    note(tmp_path / "gone" / "commands.log", "true")
