"""What ssh asks, and how it gets its answer: by a real ssh, and by one that only asks."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand.base.errors import HostError, RemoteUnansweredError
from quicksand.base.listing import own_sockets
from quicksand.base.paths import Paths
from quicksand.records.host_sockets import ASKPASS_SOCKETS
from quicksand.remote import askpass as module
from quicksand.remote.abandoned import ABANDONED_S
from quicksand.remote.askpass import Askpass, Kind, Question, shown_prompt
from quicksand.remote.connection import Connection
from quicksand.remote.destination import Destination

from tests.ssh_server import FarHost, far_environ, find_sshd, lock_key, with_sshd
from tests.unit.remote.far import until

PASSPHRASE = "correct hörse"

needs_sshd = pytest.mark.skipif(find_sshd() is None, reason="there is no sshd on this host")


class User:
    """Answers questions, each with the next of its answers; without one it thinks for ever."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.asked: list[Question] = []
        self.taken_back = 0

    async def __call__(self, question: Question) -> str | None:
        self.asked.append(question)
        if self.answers:
            return self.answers.pop(0)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.taken_back += 1
            raise
        return None


async def ask_as_ssh(
    environment: dict[str, str], prompt: str = "Password: ", kind: str = "", *, notice: bool = False
) -> asyncio.subprocess.Process:
    """Start our program as ssh does (readpass.c)."""
    words = {"SSH_ASKPASS_PROMPT": kind} if kind else {}
    return await asyncio.create_subprocess_exec(
        environment["SSH_ASKPASS"],
        prompt,
        env={**os.environ, **environment, **words},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL if notice else asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def outcome(process: asyncio.subprocess.Process) -> tuple[int | None, bytes, bytes]:
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return process.returncode, out or b"", err


async def test_an_answer_is_printed_for_ssh_and_a_cancelled_question_is_none(places: Paths) -> None:
    user = User("s3cret", None)
    async with Askpass(user, places.runtime) as askpass:
        (path,) = own_sockets(places.runtime, ASKPASS_SOCKETS)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        asker = askpass.begin("box")
        assert asker.environment["SSH_ASKPASS_REQUIRE"] == "force"
        process = await ask_as_ssh(asker.environment, "Enter passphrase:\x1b[2J ")
        assert await outcome(process) == (0, b"s3cret\n", b"")
        expected = Question(host="box", prompt="Enter passphrase:?[2J", kind=Kind.SECRET)
        assert user.asked == [expected]
        assert await outcome(await ask_as_ssh(asker.environment)) == (1, b"", b"")
        assert asker.is_given_up
        # Who gives up once is not asked for the next key, and again for a password.
        assert await outcome(await ask_as_ssh(asker.environment)) == (1, b"", b"")
        assert len(user.asked) == 2
    assert own_sockets(places.runtime, ASKPASS_SOCKETS) == []
    assert await outcome(await ask_as_ssh(asker.environment)) == (1, b"", b"")


async def test_confirmations_and_notices_are_told_from_secrets(places: Paths) -> None:
    user = User("no", "yes")
    async with Askpass(user, places.runtime) as askpass:
        asker = askpass.begin("box")
        assert await outcome(await ask_as_ssh(asker.environment, "Allow?", "confirm")) == (
            0,
            b"no\n",
            b"",
        )
        unknown = await ask_as_ssh(asker.environment, "?", "of a later version")
        assert await outcome(unknown) == (0, b"yes\n", b"")
        notice = await ask_as_ssh(asker.environment, "Touch it", "none", notice=True)
        await until(lambda: len(user.asked) == 3, "the notice")
        assert [one.kind for one in user.asked] == [Kind.CONFIRM, Kind.SECRET, Kind.NOTICE]
        # ssh ends its notice when the key was touched.
        notice.terminate()
        await notice.wait()
        await until(lambda: user.taken_back == 1, "the notice to be taken back")
        assert not asker.is_given_up


async def test_a_question_is_taken_back_when_ssh_is_killed(places: Paths) -> None:
    """Its pipe says so; with a notice, that it is no longer the parent."""
    user = User()
    async with Askpass(user, places.runtime) as askpass:
        asker = askpass.begin("box")
        for kind, stdout in (("", subprocess.PIPE), ("none", subprocess.DEVNULL)):
            env = {**os.environ, **asker.environment, "SSH_ASKPASS_PROMPT": kind}
            words = 'import subprocess, os; subprocess.run([os.environ["SSH_ASKPASS"], "?"])'
            parent = subprocess.Popen([sys.executable, "-c", words], env=env, stdout=stdout)
            await until(lambda: len(user.asked) > user.taken_back, "the question")
            parent.kill()
            parent.wait()
            if parent.stdout is not None:
                parent.stdout.close()
            await until(lambda: user.taken_back == len(user.asked), "it to be taken back")


async def test_an_asker_that_ends_takes_its_questions_with_it_and_no_others(places: Paths) -> None:
    user = User()
    async with Askpass(user, places.runtime) as askpass:
        one, other = askpass.begin("box"), askpass.begin("den")
        first = await ask_as_ssh(one.environment)
        second = await ask_as_ssh(other.environment)
        await until(lambda: len(user.asked) == 2, "both questions")
        one.end()
        assert await outcome(first) == (1, b"", b"")
        assert user.taken_back == 1
        assert await outcome(await ask_as_ssh(one.environment)) == (1, b"", b"")
        assert len(user.asked) == 2
    assert await outcome(second) == (1, b"", b""), "the end of all takes the rest back"
    assert user.taken_back == 2


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\n",
        b"x" * 10_000,
        b"wrong secret 3\nabc",
        b"\xff\xfe secret 3\nabc",
        b"TOKEN secret 99999999999\n",
        b"TOKEN secret -1\n",
        b"TOKEN secret many\n",
        b"TOKEN what 3\nabc",
        b"TOKEN secret 30\nabc",
    ],
)
async def test_nobody_else_is_answered(places: Paths, sent: bytes) -> None:
    user = User("s3cret")
    async with Askpass(user, places.runtime) as askpass:
        asker = askpass.begin("box")
        path = asker.environment["QUICKSAND_ASKPASS_SOCKET"]
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(sent.replace(b"TOKEN", asker.token.encode()))
        writer.write_eof()
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
        assert user.asked == []
        assert await outcome(await ask_as_ssh(asker.environment)) == (0, b"s3cret\n", b"")


async def test_other_users_are_refused(places: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Askpass(User("s3cret"), places.runtime) as askpass:
        environment = askpass.begin("box").environment
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
        assert await outcome(await ask_as_ssh(environment)) == (1, b"", b"")


@pytest.mark.parametrize("answer", ["x" * 1024, "two\nlines"])
async def test_what_ssh_would_cut_is_no_answer(places: Paths, answer: str) -> None:
    async with Askpass(User(answer), places.runtime) as askpass:
        environment = askpass.begin("box").environment
        assert await outcome(await ask_as_ssh(environment)) == (1, b"", b"")


async def test_not_more_than_some_are_asked_at_once(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPEN_MAX", 1)
    user = User()
    async with Askpass(user, places.runtime) as askpass:
        environment = askpass.begin("box").environment
        first = await ask_as_ssh(environment)
        await until(lambda: user.asked, "the first")
        assert await outcome(await ask_as_ssh(environment)) == (1, b"", b"")
    assert await outcome(first) == (1, b"", b"")


async def test_sockets_that_killed_programs_have_left_are_removed(places: Paths) -> None:
    async with Askpass(User(), places.runtime):
        (left,) = own_sockets(places.runtime, ASKPASS_SOCKETS)
        name = left.with_name(f"askpass-{'0' * 32}.sock")
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(name))
        long_ago = time.time() - ABANDONED_S - 1
        os.utime(name, (long_ago, long_ago))
        async with Askpass(User(), places.runtime):
            assert name not in own_sockets(places.runtime, ASKPASS_SOCKETS)
            assert left in own_sockets(places.runtime, ASKPASS_SOCKETS)


async def test_a_program_that_cannot_be_run_is_named(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "askpass.sh"
    program.touch(0o644)
    monkeypatch.setattr(module, "PROGRAM", program)
    with pytest.raises(HostError, match=r"askpass\.sh is not executable"):
        async with Askpass(User(), places.runtime):
            pass
    assert own_sockets(places.runtime, ASKPASS_SOCKETS) == []


def test_a_prompt_is_bounded_and_cannot_act_on_a_terminal() -> None:
    assert shown_prompt(b" (yes/no)? ") == "(yes/no)?"
    assert (
        shown_prompt(b"one\r\ntwo\ttabs\x07\x9b\xff\xe2\x80\xae") == "one\ntwo tabs?\ufffd\ufffd?"
    )
    long = shown_prompt(b"x" * 4096)
    assert len(long) == 2001
    assert long.endswith("x…")
    assert shown_prompt(b"y\n" * 400).count("\n") == 15


# A real ssh


@pytest.fixture
def far(places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FarHost]:
    """An sshd that takes one key only, which has a passphrase."""
    root = tmp_path / "far"
    root.mkdir()
    with with_sshd(root, far_environ()) as found:
        lock_key(found, PASSPHRASE)
        monkeypatch.setenv("PATH", f"{found.bin}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        yield found


def connection(far: FarHost, askpass: Askpass) -> Connection:
    return Connection(Destination.parse(far.address), asks=False, askpass=askpass)


@needs_sshd
async def test_a_passphrase_is_asked_until_it_is_right(far: FarHost, places: Paths) -> None:
    user = User("wrong", PASSPHRASE)
    async with Askpass(user, places.runtime) as askpass, connection(far, askpass) as near:
        await near.link.request("ping")
        first, second = user.asked
        assert first == second
        assert first.host == Destination.parse(far.address).short
        assert first.kind is Kind.SECRET
        assert first.prompt.startswith("Enter passphrase for key")
        # It breaks, and is connected to again: with its own questions.
        user.answers.append(PASSPHRASE)
        await near.open(resume=True)
        await near.link.request("ping")
        assert len(user.asked) == 3


@needs_sshd
async def test_who_gives_up_is_not_connected_and_not_asked_again(
    far: FarHost, places: Paths
) -> None:
    user = User(None)
    async with Askpass(user, places.runtime) as askpass:
        near = connection(far, askpass)
        with pytest.raises(RemoteUnansweredError):
            await near.open()
        assert len(user.asked) == 1
        # The next attempt is a new one.
        user.answers.append(PASSPHRASE)
        await near.open()
        await near.close()


@needs_sshd
async def test_an_unknown_host_key_is_asked_about(far: FarHost, places: Paths) -> None:
    config = far.bin.parent / "ssh_config"
    text = config.read_text().replace("StrictHostKeyChecking yes", "StrictHostKeyChecking ask")
    config.write_text(text)
    (far.bin.parent / "known").unlink()
    user = User("yes", PASSPHRASE)
    async with Askpass(user, places.runtime) as askpass, connection(far, askpass):
        question = user.asked[0]
        assert "fingerprint is SHA256:" in question.prompt
        assert question.prompt.endswith("(yes/no/[fingerprint])?")
        assert "\n" in question.prompt


@needs_sshd
async def test_a_deadline_waits_for_the_user_and_the_end_takes_the_question_back(
    far: FarHost, places: Paths
) -> None:
    user = User()
    async with Askpass(user, places.runtime) as askpass:
        near = connection(far, askpass)
        opening = asyncio.create_task(near.open())
        await until(lambda: user.asked, "the question")
        (asker,) = askpass._askers
        assert asker.limit is not None
        assert asker.limit.when() is None
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled()
        await until(lambda: user.taken_back == 1, "the question to be taken back")
        assert asker.has_ended
