"""What a terminal says by itself: to the guest that asked for it, and to no other one."""

from __future__ import annotations

from quicksand_panes.guest_terminal import LinkState, Said

from quicksand_tui.door.typed import TypedQueue
from quicksand_tui.model.jobs import Job, JobVerb
from tests.each import trying
from tests.unit.app.fakes import NOW, WEB, FakeService, app_of, screen_text, until
from tests.unit.panes.test_panes_screen import command, opened, opens, says

QUESTIONS = (
    b"\x1b[c\x1b[>c\x1b[=c\x1bZ\x1b[5n\x1b[6n\x1b[?6n\x1b[?15n\x1b[?25n\x1b[?26n\x1b[4$p\x1b[?25$p"
    b"\x1b[>q\x1b[?4m\x1b[11t\x1b[18t\x1b[19t\x1b]4;1;?\x07\x1b]10;?\x07\x1b]11;?\x1b\\\x1b]12;?\x07"
    b"\x1bP$qm\x1b\\\x1bP$qr\x1b\\\x1bP$q q\x1b\\\x1bP+q544e\x1b\\"
)
"""Of each kind that the emulator answers."""


async def test_each_question_of_now_is_answered_and_none_of_before() -> None:
    service = FakeService()
    async with opened(service) as (pilot, _):
        (guest,) = service.terminals
        guest.say(QUESTIONS, Said.BEFORE)
        guest.say(QUESTIONS, Said.SHARED)
        await says(pilot, guest, b"\x1b[5n")
        assert guest.typed == b"\x1b[0n"
        for question in QUESTIONS.replace(b"\x1b\\", b"\x07").split(b"\x1b")[1:]:
            before = guest.typed
            asked = b"\x1b" + question
            asked = asked.replace(b"\x07", b"\x1b\\") if asked.startswith(b"\x1bP") else asked
            await says(pilot, guest, asked)
            assert guest.typed != before, asked


async def test_a_question_is_of_when_it_ends() -> None:
    question = b"\x1b]11;?\x07"
    service = FakeService()
    async with opened(service) as (pilot, _):
        (guest,) = service.terminals
        for cut in range(1, len(question)):
            with trying(cut):
                guest.typed = b""
                guest.say(question[:cut], Said.BEFORE)
                await says(pilot, guest, question[cut:])
                assert guest.typed.startswith(b"\x1b]11;rgb:")
                assert guest.typed.count(b"\x1b]11;") == 1


async def test_many_old_questions_take_no_room_from_a_new_one() -> None:
    service = FakeService()
    async with opened(service) as (pilot, _):
        (guest,) = service.terminals
        guest.say(QUESTIONS * 500, Said.BEFORE)
        await says(pilot, guest, b"\x1b[>q")
        assert guest.typed == b"\x1bP>|quicksand-tui\x1b\\"


async def test_an_answer_is_of_the_opening_that_the_question_came_by() -> None:
    service = FakeService()
    async with opened(service) as (pilot, _):
        (guest,) = service.terminals
        guest.say(b"\x1b[5n")
        guest.tell(LinkState.CONNECTING, "reverted")
        guest.tell(LinkState.OPEN, "reverted")
        await says(pilot, guest, b"\x1b[6n")
        assert guest.reports == [(b"\x1b[1;1R", 2)]


async def test_the_past_rings_no_bell_and_writes_no_clipboard() -> None:
    service = FakeService()
    async with opened(service, (100, 30)) as (pilot, workspace):
        (guest,) = service.terminals
        guest.say(b"\x1b]52;c;c3RvbGVu\x07\x07\x1b]0;the title\x07", Said.BEFORE)
        await says(pilot, guest, b"")
        await until(lambda: "the title" in screen_text(app_of(pilot)))
        assert pilot.app.clipboard != "stolen"
        assert not workspace.panes[0].bell


async def test_focus_and_mouse_are_told_as_the_restored_screen_has_it() -> None:
    service = FakeService()
    async with opened(service, (100, 30)) as (pilot, workspace):
        await command(pilot, "percent_sign")
        await until(lambda: opens(workspace, 2))
        first, second = service.terminals
        await says(pilot, second, b"\x1b[?1004h\x1b[?1000h")
        second.tell(LinkState.CONNECTING, "reverted")
        await command(pilot, "o")
        await pilot.pause()
        second.tell(LinkState.OPEN, "reverted")
        second.say(b"\x1b[?1004h\x1b[?1000h", Said.BEFORE)
        await until(lambda: second.unread == 0)
        await command(pilot, "o")
        await pilot.click(workspace.panes[1])
        await pilot.pause()
        assert second.reports == [], "it is still repeated: perhaps they are switched off again"
        await says(pilot, second, b"\x1b[?1004l\x1b[?1000l")
        await command(pilot, "o")
        await pilot.pause()
        assert second.reports == []
        await says(pilot, second, b"\x1b[?1004h")
        await command(pilot, "o")
        await until(lambda: second.reports == [(b"\x1b[I", 2)])
        assert first.reports == []


async def test_what_is_typed_behind_the_key_that_reverts_is_for_where_it_goes() -> None:
    service = FakeService()
    async with opened(service) as (pilot, _):
        (guest,) = service.terminals
        operations = app_of(pilot).operations
        await pilot.press("a")
        job = Job(sandbox_id=WEB.id, name="web", verb=JobVerb.REVERT, image="", started=NOW)
        operations._jobs[WEB.id] = job
        await pilot.press("b", "c")
        assert guest.typed == b"a"
        guest.tell(LinkState.CONNECTING, "reverted")
        guest.tell(LinkState.OPEN, "reverted")
        await until(lambda: guest.typed == b"abc")
        await pilot.press("d")
        assert guest.typed == b"abcd", "it is there, though the job has not ended"


async def test_what_is_typed_during_a_revert_that_fails_comes_behind_it() -> None:
    service = FakeService()
    async with opened(service) as (pilot, _):
        (guest,) = service.terminals
        app = app_of(pilot)
        job = Job(sandbox_id=WEB.id, name="web", verb=JobVerb.UNDO, image="", started=NOW)
        app.operations._jobs[WEB.id] = job
        await pilot.press("b")
        assert guest.typed == b""
        del app.operations._jobs[WEB.id]
        app.main.show(app.world)
        assert guest.typed == b"b"


def test_what_waits_for_a_guest_goes_with_it() -> None:
    queue = TypedQueue()
    queue.type(b"old")
    queue.report(b"answer")
    queue.type_for_next(b"new")
    queue.reverted()
    assert queue.take() == b"new"
    queue.type(b"one")
    queue.report(b"answer")
    queue.type(b"two")
    queue.broke()
    assert queue.take() == b"onetwo"


def test_half_an_answer_is_never_sent() -> None:
    queue = TypedQueue()
    queue.type(b"x" * (1 << 20))
    queue.report(b"answer")
    assert queue.take() == b"x" * (1 << 20)
