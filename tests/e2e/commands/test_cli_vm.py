"""Every command on a real VM."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import stat
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from quicksand.base.paths import Paths

from quicksand_tui.cli.output import show_size
from tests.conftest import our_processes, wait_for
from tests.e2e.commands.conftest import (
    IMAGE,
    PROGRAM,
    execute,
    in_vm,
    invoke,
    pipe_of,
    quicksand,
    start_quicksand,
)

pytestmark = pytest.mark.vm

MB = 1_000_000


def output_of(vm: str, *command: str, stdin: bytes = b"") -> bytes:
    """What `exec` of a command in the VM writes to stdout."""
    options = ("-i",) if stdin else ()
    result = quicksand("exec", *options, vm, "--", *command, stdin=stdin)
    assert result.returncode == 0, result
    return result.stdout


def runs_in(vm: str, command: str) -> bool:
    """Whether a process of this command line runs in the VM."""
    return execute(vm, ["pgrep", "-fx", command]).exit_code == 0


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    return pipe_of(process.stdout).readline()


# exec


def test_both_streams_come_apart_and_the_exit_code_is_passed_on(vm: str) -> None:
    result = quicksand("exec", vm, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (result.returncode, result.stdout, result.stderr) == (3, b"out\n", b"err\n")


def test_a_timeout_ends_the_command_in_time(vm: str) -> None:
    """In the guest, and for whoever waits: a busy host may be late, but not each time."""

    def overhead() -> float:
        started = time.monotonic()
        output_of(vm, "true")
        return time.monotonic() - started

    lines = "cut -d ' ' -f 1 /proc/uptime"
    script = f"echo begun; while :; do {lines}; sleep 0.05; done & sleep 60.25"

    def is_in_time() -> bool:
        before = overhead()
        started = time.monotonic()
        result = quicksand("exec", vm, "--timeout", "2", "--", "sh", "-c", script)
        taken = time.monotonic() - started
        assert (result.returncode, result.stderr) == (124, b"quicksand-tui: timed out after 2 s\n")
        begun, *told = result.stdout.split()
        assert begun == b"begun"
        wait_for(lambda: not runs_in(vm, "sleep 60.25"), what="the command to end")
        lasted = float(told[-1]) - float(told[0]) if told else 0
        return 1 < lasted < 2.5 and taken < 2.5 + max(before, overhead())

    assert any(is_in_time() for _ in range(3))


@pytest.mark.parametrize(
    ("options", "command", "code", "said"),
    [
        ((), ("no-such-program",), 127, b'"no-such-program" not found'),
        pytest.param((), ("/no/such",), 127, b"/no/such", marks=pytest.mark.soak),
        ((), ("/etc/passwd",), 126, b"ermission denied"),
        (("--user", "nobody-here"), ("true",), 125, b"nobody-here"),
        pytest.param(("--cwd", "/no/dir"), ("true",), 125, b"/no/dir", marks=pytest.mark.soak),
        ((), ("sh", "-c", "exit 125"), 125, b""),
        ((), ("sh", "-c", "kill -9 $$"), 137, b""),
    ],
)
def test_exit_codes_tell_what_went_wrong(
    options: tuple[str, ...], command: tuple[str, ...], code: int, said: bytes, vm: str
) -> None:
    result = quicksand("exec", *options, vm, "--", *command)
    assert result.returncode == code
    assert said in result.stderr
    assert bool(said) == bool(result.stderr)


def test_arguments_arrive_as_they_are(vm: str) -> None:
    words = ("a b", "$HOME", "`id`", '"', "'", "*", "", "-x", "--", "é\n", "x" * 100_000)
    shown = output_of(vm, "printf", "%s\\0", *words)
    assert shown == b"".join(word.encode() + b"\0" for word in words)


def test_environment_user_and_directory_are_as_asked(
    vm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSED_ON", "from here")
    options = ("-e", "ONE=1 2", "-e", "PASSED_ON", "-e", "EMPTY=", "--cwd", "/usr")
    script = 'echo "$ONE,$PASSED_ON,${EMPTY-unset},$PWD,$(id -un)"'
    result = quicksand("exec", vm, *options, "--user", "quicksand", "--", "sh", "-c", script)
    assert result.stdout == b"1 2,from here,,/usr,quicksand\n"


def test_every_byte_goes_through_both_ways(vm: str) -> None:
    data = bytes(range(256)) * 1000 + random.Random(1).randbytes(MB) + b"\xff\xfe no newline"
    assert output_of(vm, "cat", stdin=data) == data


def test_stdin_is_empty_unless_asked_for(vm: str) -> None:
    assert quicksand("exec", vm, "--", "wc", "-c", stdin=b"12345").stdout == b"0\n"


def test_a_command_need_not_read_all_of_stdin(vm: str) -> None:
    result = quicksand("exec", "-i", vm, "--", "head", "-c", "3", stdin=b"abc" * 5 * MB)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"abc", b"")


def test_json_has_the_output_and_how_it_ended(vm: str) -> None:
    script = "echo out; printf 'bad \\377' >&2; kill -TERM $$"
    result = quicksand("exec", "--json", vm, "--", "sh", "-c", script)
    found = json.loads(result.stdout)
    assert result.returncode == found["exit_code"] == 128 + signal.SIGTERM
    assert (found["stdout"], found["stderr"]) == ("out\n", "bad \N{REPLACEMENT CHARACTER}")
    assert (found["signal"], found["timed_out"]) == (signal.SIGTERM, False)
    assert found["duration_s"] > 0
    result = quicksand("exec", "--json", vm, "--timeout", "0.3", "--", "sleep", "60")
    assert (result.returncode, json.loads(result.stdout)["timed_out"]) == (124, True)


@dataclass
class Consumed:
    """What came out of a process, and the most memory that it was seen to have."""

    digest: str
    size: int
    memory: int


def consume(process: subprocess.Popen[bytes]) -> Consumed:
    """Read all that a process writes to stdout."""
    digest, size, memory = hashlib.sha256(), 0, 0
    while data := os.read(pipe_of(process.stdout).fileno(), 1 << 20):
        if size // (8 * MB) != (size + len(data)) // (8 * MB) or not memory:
            memory = peak_memory(process) or memory
        digest.update(data)
        size += len(data)
    return Consumed(digest.hexdigest(), size, memory)


def peak_memory(process: subprocess.Popen[bytes]) -> int:
    """The most memory that a running process has had, in bytes; 0 once it has ended. (A child's
    rusage would count what its parent had before the exec.)"""
    status = Path(f"/proc/{process.pid}/status").read_text()
    lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0].split()[1]) * 1024 if lines else 0


@pytest.mark.parametrize("pieces", [3, pytest.param(25, marks=pytest.mark.soak)])
def test_much_output_comes_through_whole_in_little_memory(vm: str, pieces: int) -> None:
    piece = random.Random(2).randbytes(20 * MB)
    output_of(vm, "sh", "-c", "cat > /var/tmp/piece", stdin=piece)
    expected = hashlib.sha256()
    for _ in range(pieces):
        expected.update(piece)
    again = f"for i in $(seq {pieces}); do cat /var/tmp/piece; done"
    with start_quicksand("exec", vm, "--", "sh", "-c", again) as process:
        found = consume(process)
    in_vm(vm, "rm /var/tmp/piece")
    assert (process.returncode, found.size) == (0, pieces * 20 * MB)
    assert found.digest == expected.hexdigest()
    assert 0 < found.memory < 50 * MB


def feed_and_measure(vm: str, megabytes: int) -> tuple[bytes, int]:
    """Feed zeros to `wc -c` in the VM; return what it says and the client's peak memory."""
    with start_quicksand("exec", "-i", vm, "--", "wc", "-c", stdin=subprocess.PIPE) as process:
        stdin = pipe_of(process.stdin)
        for _ in range(megabytes):
            stdin.write(bytes(MB))
        memory = peak_memory(process)
        stdin.close()
        return pipe_of(process.stdout).read(), memory


def test_much_stdin_goes_through_in_little_memory(vm: str) -> None:
    said, memory = feed_and_measure(vm, 60)
    assert said == b"%d\n" % (60 * MB)
    assert 0 < memory < 50 * MB


@pytest.mark.soak
def test_1_gb_of_stdin_goes_through_in_little_memory(vm: str) -> None:
    said, memory = feed_and_measure(vm, 1000)
    assert said == b"%d\n" % (1000 * MB)
    assert 0 < memory < 100 * MB


def test_a_slow_reader_holds_the_command_up_and_loses_nothing(vm: str) -> None:
    script = "head -c 16000000 /dev/zero; touch /tmp/wrote-all"
    with start_quicksand("exec", vm, "--", "sh", "-c", script) as process:
        first = os.read(pipe_of(process.stdout).fileno(), 1)
        assert execute(vm, "test -e /tmp/wrote-all").exit_code == 1
        assert len(first) + consume(process).size == 16 * MB
    in_vm(vm, "rm /tmp/wrote-all")


def test_a_reader_that_goes_away_ends_the_command(vm: str) -> None:
    with start_quicksand("exec", vm, "--", "yes", "gone") as process:
        assert pipe_of(process.stdout).read(5) == b"gone\n"
        pipe_of(process.stdout).close()
        assert pipe_of(process.stderr).read() == b""
    assert process.returncode == 141
    wait_for(lambda: not runs_in(vm, "yes gone"), what="the command to end")


def test_a_full_disk_here_is_told_and_ends_the_command(vm: str) -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [*PROGRAM, "exec", vm, "--", "yes", "full"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert result.returncode == 125
    assert result.stderr == b"quicksand-tui: No space left on device\n"
    wait_for(lambda: not runs_in(vm, "yes full"), what="the command to end")


def test_closed_streams_are_no_trouble(vm: str) -> None:
    script = '"$@" >&- 2>&- <&-; echo code=$?'
    command = [*PROGRAM, "exec", "-i", vm, "--", "sh", "-c", "cat; echo out; echo err >&2; exit 4"]
    result = subprocess.run(
        ["sh", "-c", script, "sh", *command], capture_output=True, timeout=60, check=True
    )
    assert result.stdout == b"code=4\n"


def test_ctrl_c_reaches_the_command_and_the_client_waits_for_its_end(vm: str) -> None:
    script = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done"
    with start_quicksand("exec", vm, "--", "sh", "-c", script) as process:
        assert read_line(process) == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate() == (b"caught\n", b"")
    assert process.returncode == 7


def test_a_second_ctrl_c_ends_a_command_that_does_not_listen(vm: str) -> None:
    script = "trap 'echo deaf' INT TERM; echo ready; while :; do sleep 0.05; done # deaf one"
    with start_quicksand("exec", vm, "--", "sh", "-c", script) as process:
        assert read_line(process) == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert read_line(process) == b"deaf\n"
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    wait_for(lambda: not runs_in(vm, "sh -c trap.*deaf one"), what="the command to end")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_client_that_is_ended_ends_its_command(number: signal.Signals, vm: str) -> None:
    with start_quicksand("exec", vm, "--", "sh", "-c", "echo ready; exec sleep 61.5") as process:
        assert read_line(process) == b"ready\n"
        process.send_signal(number)
        process.communicate()
    assert process.returncode == (-number if number is signal.SIGKILL else 128 + number)
    wait_for(lambda: not runs_in(vm, "sleep 61.5"), what="the command to end")


# cp


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with all that can be copied."""
    root = tmp_path / "tree with, comma"
    (root / "inner" / "empty").mkdir(parents=True)
    (root / "big").write_bytes(random.Random(3).randbytes(3 * MB))
    (root / "run me").write_text("#!/bin/sh\n")
    (root / "run me").chmod(0o751)
    (root / "inner" / "link").symlink_to("../run me")
    (root / "inner" / "nowhere").symlink_to("/no/where")
    Path(os.fsdecode(os.fsencode(root) + b"/not \xff utf-8 \n\x1b[2J")).write_bytes(b"x")
    (root / "inner" / "empty").chmod(0o700)
    os.link(root / "run me", root / "inner" / "same")
    os.link(root / "inner" / "nowhere", root / "nowhere", follow_symlinks=False)
    with (root / "sparse").open("wb") as file:
        file.seek(3 * 1024 * MB)
        file.write(b"far away")
        file.truncate(6 * 1024 * MB)
    for number, path in enumerate([*sorted(root.rglob("*"), reverse=True), root]):
        os.utime(path, ns=(0, 10**18 + number * 123_456_789), follow_symlinks=False)
    return root


def facts(root: Path) -> dict[str, tuple[int, bytes, int, list[str]]]:
    """Modes, contents, times and other names of all that is in a directory, and of itself."""
    names: dict[tuple[int, int], list[str]] = {}
    for path in sorted([root, *root.rglob("*")]):
        about = path.lstat()
        names.setdefault((about.st_dev, about.st_ino), []).append(str(path.relative_to(root)))
    found = {}
    for path in sorted([root, *root.rglob("*")]):
        about = path.lstat()
        mode = about.st_mode
        content = b""
        if stat.S_ISLNK(mode):
            content, mode = os.fsencode(path.readlink()), 0
        elif stat.S_ISREG(mode):
            content = read_at_most(path, 4 * MB)
        same = names[about.st_dev, about.st_ino]
        found[str(path.relative_to(root))] = (mode, content, about.st_mtime_ns, same)
    return found


def read_at_most(path: Path, size: int) -> bytes:
    """A file's last bytes and its length; of sparse ones, only those that are not holes."""
    with path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        begin = os.lseek(file.fileno(), 0, os.SEEK_DATA) if length > size else 0
        return b"%d %d " % (length, begin) + os.pread(file.fileno(), size, begin)


def test_a_tree_comes_back_as_it_went(vm: str, tree: Path, tmp_path: Path) -> None:
    sent = quicksand("cp", str(tree), f"{vm}:/root/")
    assert (sent.returncode, sent.stdout, sent.stderr) == (0, b"", b"")
    about = in_vm(vm, f"stat -c '%a %h %y' '/root/{tree.name}/run me'")
    assert about.startswith("751 2 2001-09-09")
    assert int(in_vm(vm, f"du -sm '/root/{tree.name}' | cut -f1")) < 10
    assert in_vm(vm, f"stat -c %s '/root/{tree.name}/sparse'") == str(6 * 1024 * MB)
    back = tmp_path / "back"
    fetched = quicksand("cp", f"{vm}:/root/{tree.name}", str(back))
    assert (fetched.returncode, fetched.stderr) == (0, b"")
    assert facts(back) == facts(tree)
    assert (back / "sparse").stat().st_blocks * 512 < MB
    in_vm(vm, f"rm -r '/root/{tree.name}'")


def test_one_file_goes_through_stdin_and_stdout(vm: str) -> None:
    data = random.Random(4).randbytes(MB)
    assert quicksand("cp", "-", f"{vm}:/tmp/one", stdin=data).returncode == 0
    assert quicksand("cp", f"{vm}:/tmp/one", "-").stdout == data


def test_what_is_no_file_is_left_out_and_told(vm: str, tmp_path: Path) -> None:
    in_vm(vm, "mkdir /tmp/odd && mkfifo /tmp/odd/pipe && echo x > /tmp/odd/file")
    result = quicksand("cp", f"{vm}:/tmp/odd", str(tmp_path))
    assert result.returncode == 1
    assert b"/tmp/odd/pipe is a pipe" in result.stderr
    assert [path.name for path in (tmp_path / "odd").iterdir()] == ["file"]


@pytest.mark.parametrize("path", ["/no/such", "/etc/shadow-"])
def test_a_missing_file_is_named(path: str, vm: str, tmp_path: Path) -> None:
    result = quicksand("cp", f"{vm}:{path}/x", str(tmp_path))
    assert result.returncode == 1
    assert path.encode() in result.stderr
    assert list(tmp_path.iterdir()) == []


# Looking


def test_the_running_one_is_listed(vm: str) -> None:
    (found,) = json.loads(invoke("ps", "--json").stdout)
    assert (found["name"], found["status"], found["image"]) == (vm, "running", IMAGE)
    assert found["accel"] in ("kvm", "hvf", "tcg")
    assert vm.encode() in invoke("ps").stdout


def test_statistics_have_both_sides(vm: str) -> None:
    (found,) = json.loads(invoke("stats", "--json").stdout)
    assert found["name"] == vm
    assert found["rss"] > 50 * MB
    assert 300 * MB < found["guest"]["memory_total"] < 600 * MB
    assert found["guest"]["processes"] > 1
    table = invoke("stats", vm).stdout.decode().splitlines()
    assert table[1].startswith(vm)


def test_the_console_is_in_the_log(vm: str) -> None:
    in_vm(vm, "echo to the console > /dev/console")
    wait_for(lambda: b"to the console" in invoke("logs", vm).stdout, what="the console's line")


def test_images_are_listed_and_inspected() -> None:
    found = json.loads(invoke("images", "--json").stdout)
    assert IMAGE in [image["name"] for image in found]
    facts_of = json.loads(invoke("images", "inspect", IMAGE, "--json").stdout)
    assert set(facts_of["files"]) == {"disk", "kernel", "initrd"}
    assert IMAGE.encode() in invoke("images", "list").stdout


def test_an_image_in_use_is_not_removed(vm: str) -> None:
    result = invoke("images", "rm", IMAGE)
    assert result.returncode == 1
    assert vm.encode() in result.stderr


def test_info_names_the_places(places: Paths) -> None:
    found = json.loads(invoke("info", "--json").stdout)
    assert found["places"]["data"] == str(places.data)
    assert found["qemu"]["version"]
    assert b"qemu" in invoke("info").stdout


# Life


def test_a_paused_one_takes_no_commands_until_it_goes_on(vm: str) -> None:
    assert invoke("pause", vm).stdout == vm.encode() + b"\n"
    assert b"paused" in invoke("ps").stdout
    refused = quicksand("exec", vm, "--", "true")
    assert refused.returncode == 125
    assert b"quicksand-tui resume" in refused.stderr
    assert invoke("resume", vm).returncode == 0
    assert invoke("resume", vm).returncode == 0
    assert output_of(vm, "echo", "on") == b"on\n"


def test_a_running_one_is_not_removed_without_force(vm: str) -> None:
    result = invoke("rm", vm)
    assert result.returncode == 1
    assert b"rm -f" in result.stderr


def test_a_taken_name_is_refused(vm: str) -> None:
    result = invoke("run", IMAGE, "--name", vm, "-d")
    assert result.returncode == 125
    assert vm.encode() in result.stderr


def names() -> list[str]:
    return invoke("ps", "-aq").stdout.decode().split()


def test_run_passes_everything_on_and_leaves_nothing() -> None:
    before = names()
    script = "cat; echo err >&2; exit 4"
    result = quicksand("run", IMAGE, "-i", "--", "sh", "-c", script, stdin=b"in\n")
    assert (result.returncode, result.stdout, result.stderr) == (4, b"in\n", b"err\n")
    wait_for(lambda: names() == before, what="the sandbox to be gone")


def test_a_named_one_lives_again_with_its_disk() -> None:
    script = "echo kept > /root/file"
    result = quicksand("run", IMAGE, "--name", "again", "--", "sh", "-c", script)
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"stopped" in invoke("ps", "-a").stdout
    assert invoke("start", "again").stdout == b"again\n"
    twice = invoke("start", "again")
    assert twice.returncode == 1
    assert b"running" in twice.stderr
    assert in_vm("again", "cat /root/file") == "kept"
    assert invoke("stop", "again").stdout == b"again\n"
    assert invoke("stop", "again").returncode == 0
    assert invoke("rm", "again").stdout == b"again\n"
    assert "again" not in names()


def test_a_detached_command_goes_on_and_its_sandbox_is_told_as_json() -> None:
    result = quicksand("run", IMAGE, "-d", "--json", "-p", "0:80", "--", "sleep", "62.5")
    found = json.loads(result.stdout)
    assert result.returncode == 0
    assert found["ports"][0]["guest"] == 80
    assert found["ports"][0]["host"] > 0
    assert runs_in(found["name"], "sleep 62.5")
    assert invoke("kill", found["name"]).returncode == 0
    assert found["name"] not in names()


def test_a_save_is_told_with_the_size_that_the_list_has(vm: str) -> None:
    in_vm(vm, "head -c 3M /dev/urandom > /root/ballast; sync")
    made = invoke("save", vm, "sized")
    assert made.returncode == 0, made.stderr
    told = re.search(rb"^sized +(\S+ \w+)", made.stdout, re.MULTILINE)
    assert told, made.stdout
    (listed,) = json.loads(invoke("saves", "--json").stdout)
    assert told[1].decode() == show_size(listed["own"] + listed["shared"])
    assert invoke("saves", "rm", "sized", "--now").returncode == 0
    in_vm(vm, "rm /root/ballast")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("delay", [0.15, 0.4, 1.0])
def test_a_start_that_is_broken_off_leaves_nothing(
    number: signal.Signals, delay: float, places: Paths
) -> None:
    before = names()
    here = str(places.data.parent)
    others = set(our_processes(here))
    with start_quicksand("run", IMAGE, "--", "sleep", "60") as process:
        time.sleep(delay)  # the stage is the point of the test
        process.send_signal(number)
        _, said = process.communicate()
    # Python itself, interrupted as it begins, ends in its own way.
    assert process.returncode in (128 + number, -number) or b"Fatal Python error: init_" in said
    # Where the command ran already, SIGINT ends that, and the keeper cleans up behind `run`.
    wait_for(lambda: names() == before, what="the sandbox to be gone")
    wait_for(lambda: set(our_processes(here)) == others, what="its processes to end")
    assert len(list(places.sandboxes.glob("[!.]*"))) == len(before)


def test_a_foreground_sandbox_dies_with_its_client() -> None:
    script = "echo ready; sleep 60"
    with start_quicksand("run", IMAGE, "--", "sh", "-c", script) as process:
        assert read_line(process) == b"ready\n"
        before = len(names())
        process.kill()
        wait_for(lambda: len(names()) < before, what="the sandbox to be gone")


def test_a_command_whose_machine_dies_says_so() -> None:
    result = invoke("run", IMAGE, "--name", "doomed", "--rm", "-d", "--json")
    assert result.returncode == 0
    found = json.loads(invoke("ps", "--json").stdout)
    (pid,) = (entry["pid"] for entry in found if entry["name"] == "doomed")
    with start_quicksand("exec", "doomed", "--", "sh", "-c", "echo ready; sleep 60") as process:
        assert read_line(process) == b"ready\n"
        os.kill(pid, signal.SIGKILL)
        _, err = process.communicate()
    assert process.returncode == 125
    assert b"'doomed'" in err
