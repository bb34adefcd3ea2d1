"""Commands in a real guest."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import time
from collections.abc import AsyncIterator

import pytest
from quicksand import Sandbox
from quicksand.base.errors import AgentRefusedError, AgentUnreachableError, ConfigError

from tests.conftest import in_time

pytestmark = pytest.mark.vm


async def sleeping(vm: Sandbox, mark: str) -> bool:
    """Whether a process with ``mark`` in its command line runs in the guest."""
    result = await vm.execute(["pgrep", "-f", "-x", mark])
    return result.exit_code == 0


async def until_gone(vm: Sandbox, mark: str) -> None:
    """Wait until no such process runs. One that was killed is there until it gets a processor."""
    async with asyncio.timeout(60):
        while await sleeping(vm, mark):
            await asyncio.sleep(0.05)


async def test_streams_and_exit_code_are_apart(vm: Sandbox) -> None:
    result = await vm.execute("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert result.signal is None
    assert not result.timed_out


async def test_it_runs_as_root_in_the_root_directory_with_a_sane_environment(vm: Sandbox) -> None:
    result = await vm.execute("id -un; pwd; env")
    user, directory, *environment = result.stdout.splitlines()
    names = dict(line.split("=", 1) for line in environment)
    assert (user, directory) == ("root", "/")
    assert names["HOME"] == "/root"
    assert names["LANG"] == "C.UTF-8"
    assert "/usr/bin" in names["PATH"]
    assert not [name for name in names if "QUICKSAND" in name.upper()]


async def test_the_environment_of_the_whole_system_is_beside_that_of_a_command(vm: Sandbox) -> None:
    text = 'DISPLAY=:7\nHOME=/nowhere\nPATH=/nowhere\nexport WORDS="a b"\nno line of it\n'
    await vm.execute("cat >/etc/environment", stdin=text.encode())
    try:
        show = "echo $DISPLAY,$HOME,$WORDS,$PATH"
        result = await vm.execute(show)
        assert result.stdout.startswith(":7,/root,a b,/usr")
        result = await vm.execute(show, user="quicksand", env={"DISPLAY": ":8"})
        assert result.stdout.startswith(":8,/home/quicksand,a b,/usr")
        # A pipe that nobody writes to holds nothing up.
        await vm.execute("rm /etc/environment; mkfifo /etc/environment")
        assert (await vm.execute("echo [$DISPLAY]", timeout=20)).stdout == "[]\n"
    finally:
        await vm.execute("rm -f /etc/environment")


async def test_words_variables_and_directories_are_bytes_on_their_way_both_ways(
    vm: Sandbox,
) -> None:
    odd = os.fsdecode(b"x\xffy \xc3\xa9\xfe")
    result = await vm.execute(["printf", "%s", odd])
    assert result.stdout_bytes == os.fsencode(odd)
    show = f"printf '%s|' \"$A\" '{odd}'; pwd"
    await vm.files.mkdir(f"/tmp/{odd}")
    result = await vm.execute(show, cwd=f"/tmp/{odd}", env={"A": odd})
    expected = b"|".join([os.fsencode(odd)] * 2 + [b"/tmp/" + os.fsencode(odd)])
    assert result.stdout_bytes == expected + b"\n"
    variables = (await vm.execute(["env"], env={odd: "b", "C": "c"})).stdout_bytes.split(b"\n")
    assert {os.fsencode(odd) + b"=b", b"C=c"} <= set(variables)
    assert (await vm.execute("cat", stdin=odd)).stdout_bytes == os.fsencode(odd)
    await vm.files.write(f"/tmp/{odd}/{odd}", "#!/bin/sh\nprintf '%s' \"$0\"\n", mode=0o755)
    result = await vm.execute([f"/tmp/{odd}/{odd}"])
    assert result.stdout_bytes == b"/tmp/" + os.fsencode(odd) + b"/" + os.fsencode(odd)
    shell = await vm.shell(["printf", "%s", odd])
    assert b"".join([data async for data in shell.output()]) == os.fsencode(odd)


async def test_a_text_that_cannot_be_sent_fails_alone(vm: Sandbox) -> None:
    half = "\ud83d"
    async with await vm.spawn("read line; echo $line", stdin=True) as other:
        for attempt in (
            vm.execute(f"echo {half}"),
            vm.execute(["echo", half]),
            vm.execute("true", cwd=half),
            vm.execute("true", user=half),
            vm.execute("true", env={"A": half}),
            vm.execute("touch /tmp/not-run", stdin=half),
            vm.shell(half),
            vm.files.write("/tmp/not-run", half),
            vm.files.write(f"/tmp/{half}", b""),
            vm.files.chown("/tmp", half),
            vm.create_user(half),
            vm.request("ping", {"a": half}),
        ):
            with pytest.raises(ConfigError, match="D83D"):
                await attempt
        await other.write(b"still here\n")
        assert [data async for _, data in other.output()] == [b"still here\n"]
    assert not await vm.files.exists("/tmp/not-run")


async def test_user_cwd_env_and_shell_are_taken_seriously(vm: Sandbox) -> None:
    result = await vm.execute("id -un; pwd; echo $A; echo $0", user="quicksand", env={"A": "b c"})
    assert result.stdout.splitlines()[:3] == ["quicksand", "/home/quicksand", "b c"]
    result = await vm.execute("pwd; echo $BASH_VERSION", cwd="/usr", shell="/bin/bash")
    assert result.stdout.splitlines()[0] == "/usr"
    assert result.stdout.splitlines()[1] != ""


async def test_the_user_quicksand_has_sudo_without_a_password(vm: Sandbox) -> None:
    assert (await vm.execute("sudo -n id -un", user="quicksand")).stdout == "root\n"


async def test_no_state_is_kept_between_calls(vm: Sandbox) -> None:
    await vm.execute("cd /usr; X=1; export X")
    assert (await vm.execute("pwd; echo [$X]")).stdout == "/\n[]\n"


async def test_a_timeout_kills_all_and_keeps_the_output(vm: Sandbox) -> None:
    command = "echo begun; sh -c 'sleep 6123' & sleep 6123"

    async def lateness() -> float:
        started = time.monotonic()
        result = await vm.execute(command, timeout=5)
        taken = time.monotonic() - started
        assert result.timed_out
        assert (result.stdout, result.exit_code) == ("begun\n", 124)
        await until_gone(vm, "sleep 6123")
        return taken - 5

    assert await in_time(lateness, 2)


async def test_a_command_that_ignores_sigterm_is_killed_all_the_same(vm: Sandbox) -> None:
    result = await vm.execute("trap '' TERM; echo begun; while :; do sleep 6; done", timeout=5)
    assert result.timed_out
    assert result.stdout == "begun\n"


async def test_death_by_signal_is_told_apart(vm: Sandbox) -> None:
    result = await vm.execute("kill -9 $$")
    assert (result.exit_code, result.signal) == (137, 9)


async def test_a_background_process_does_not_hold_the_call(vm: Sandbox) -> None:
    result = await vm.execute("sleep 77 & echo done", timeout=10)
    assert result.stdout == "done\n"
    assert result.duration_s < 5
    assert await sleeping(vm, "sleep 77")
    await vm.execute("pkill -x sleep")


async def test_three_sleeps_at_once_take_the_time_of_one(vm: Sandbox) -> None:
    async def three() -> float:
        started = time.monotonic()
        await asyncio.gather(*(vm.execute("sleep 3") for _ in range(3)))
        return time.monotonic() - started

    assert await in_time(three, 6)


async def test_twenty_in_parallel_all_finish(vm: Sandbox) -> None:
    results = await asyncio.gather(*(vm.execute(f"echo {n}") for n in range(20)))
    assert [int(result.stdout) for result in results] == list(range(20))


async def test_a_flood_starves_no_other_command(vm: Sandbox) -> None:
    async with await vm.spawn("cat /dev/zero") as flood:
        reading = asyncio.create_task(_drain(flood.output()))
        for _ in range(5):
            assert (await vm.execute("echo alive", timeout=60)).stdout == "alive\n"
        reading.cancel()


async def _drain(output: AsyncIterator[object]) -> None:
    async for _ in output:
        pass


async def test_unread_output_holds_the_command_up_and_costs_no_memory(vm: Sandbox) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with await vm.spawn("yes; echo never") as flood:
        assert (await vm.execute("sleep 1; echo x")).stdout == "x\n"
        assert flood.status is None
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 32 * 1024, f"{grown} KiB"


async def test_bytes_are_bytes(vm: Sandbox) -> None:
    data = bytes(range(256)) * 1000
    result = await vm.execute("cat", stdin=data)
    assert result.stdout_bytes == data
    assert "\ufffd" in result.stdout


async def test_callbacks_get_text_as_it_comes_with_no_character_split(vm: Sandbox) -> None:
    pieces: list[str] = []
    came = asyncio.Event()

    def take(piece: str) -> None:
        pieces.append(piece)
        came.set()

    async def answers() -> AsyncIterator[bytes]:
        for _ in range(2):
            await came.wait()
            came.clear()
            yield b"\n"

    command = r"printf 'a\303'; read _; printf '\244b'; read _; printf 'c\377'"
    result = await vm.execute(command, stdin=answers(), on_stdout=take, timeout=60)
    assert "".join(pieces) == result.stdout == "aäbc\ufffd"
    assert len(pieces) >= 2


async def test_a_long_argument_and_a_long_input_arrive(vm: Sandbox) -> None:
    text = "x" * 100_000
    assert len((await vm.execute(["printf", "%s", text])).stdout) == 100_000
    data = b"0123456789abcdef" * (4 * 1024 * 1024 // 16)
    result = await vm.execute("sha256sum", stdin=data, timeout=60)
    assert result.stdout.split()[0] == hashlib.sha256(data).hexdigest()


async def test_an_argument_beyond_the_limit_is_an_error_and_not_the_end(vm: Sandbox) -> None:
    with pytest.raises(AgentRefusedError):
        await vm.execute(["true", "x" * 2_000_000])
    assert (await vm.execute("echo x")).stdout == "x\n"


async def test_input_that_nobody_reads_does_not_block(vm: Sandbox) -> None:
    result = await vm.execute("exit 7", stdin=b"x" * 10_000_000)
    assert result.exit_code == 7


async def test_a_source_of_input_that_fails_ends_the_command(vm: Sandbox) -> None:
    def broken() -> AsyncIterator[bytes]:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"half"
            raise RuntimeError("the source broke")

        return chunks()

    with pytest.raises(RuntimeError, match="the source broke"):
        await vm.execute("cat > /tmp/half; sleep 100", stdin=broken(), timeout=20)


async def test_cancelling_the_call_ends_the_command(vm: Sandbox) -> None:
    call = asyncio.create_task(vm.execute("sleep 6124", timeout=60))
    async with asyncio.timeout(60):
        while not await sleeping(vm, "sleep 6124"):
            await asyncio.sleep(0.05)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until_gone(vm, "sleep 6124")


async def test_signals_reach_the_command(vm: Sandbox) -> None:
    async with await vm.spawn(
        "trap 'echo caught; exit 5' INT; echo up; sleep 60 & wait"
    ) as command:
        output = b""
        async for _, data in command.output():
            output += data
            if data == b"up\n":
                await command.signal("INT")
    assert output == b"up\ncaught\n"
    assert command.status is not None
    assert command.status.exit_code == 5


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"user": "nobody-here"}, "nobody-here"),
        ({"cwd": "/no/such"}, "/no/such"),
        ({"shell": "/bin/nosh"}, "/bin/nosh"),
    ],
    ids=["user", "cwd", "shell"],
)
async def test_what_cannot_start_says_why(vm: Sandbox, options: dict[str, str], word: str) -> None:
    with pytest.raises(AgentRefusedError, match=word) as caught:
        await vm.execute("true", **options)  # type: ignore[arg-type]
    assert caught.value.code == "not_found"


@pytest.mark.parametrize("user", ["root", "nobody"])
async def test_programs_may_open_as_many_files_as_systemd_lets_them(vm: Sandbox, user: str) -> None:
    """The limit itself is the usual one: some programs rely on it."""
    result = await vm.execute("ulimit -Sn; ulimit -Hn; ulimit -n 65536 && ulimit -n", user=user)
    assert result.stdout == "1024\n524288\n65536\n", result.stderr


@pytest.mark.parametrize("bad", [{"timeout": 0}, {"timeout": -1}, {"cwd": "/\0"}], ids=repr)
async def test_nonsense_is_refused_before_it_is_sent(vm: Sandbox, bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        await vm.execute("true", **bad)  # type: ignore[arg-type]


async def test_a_detached_command_outlives_its_client(vm: Sandbox) -> None:
    other = Sandbox.attach(vm.name)
    await other.spawn("sleep 6125", detach=True)
    await other.spawn("sleep 6126")
    async with asyncio.timeout(60):
        while not await sleeping(vm, "sleep 6126"):
            await asyncio.sleep(0.05)
    other.close()
    await until_gone(vm, "sleep 6126")
    assert await sleeping(vm, "sleep 6125")
    await vm.execute("pkill -x sleep")


async def test_who_only_looks_on_leaves_the_guests_clock_alone(vm: Sandbox) -> None:
    await vm.execute("date -s '2001-02-03'")
    for set_clock, year in ((False, "2001"), (True, str(time.gmtime().tm_year))):
        other = Sandbox.attach(vm.name, set_clock=set_clock)
        assert (await other.execute("date +%Y")).stdout.strip() == year
        other.close()


async def test_exclusive_refuses_company(vm: Sandbox) -> None:
    async with await vm.spawn("sleep 60"):
        with pytest.raises(AgentRefusedError) as caught:
            await vm.execute("true", exclusive=True)
        assert caught.value.code == "busy"
    assert (await vm.execute("echo x", exclusive=True)).stdout == "x\n"


async def test_the_agent_killed_in_the_guest_comes_back(vm: Sandbox) -> None:
    before = await vm.request("ping")
    with pytest.raises(AgentUnreachableError):
        await vm.execute(f"kill -9 {before['pid']}; sleep 60")
    assert (await vm.execute("echo back")).stdout == "back\n"
    assert (await vm.request("ping"))["pid"] != before["pid"]


async def test_no_unprivileged_user_can_reach_the_agent_or_its_token(vm: Sandbox) -> None:
    result = await vm.execute(
        "cat /proc/cmdline; for p in /dev/vport*; do cat $p; done; cat /proc/*/environ",
        user="quicksand",
        timeout=20,
    )
    token = (Sandbox.list()[0].run or pytest.fail("not running")).token
    assert token not in result.stdout + result.stderr
    assert "Permission denied" in result.stderr
