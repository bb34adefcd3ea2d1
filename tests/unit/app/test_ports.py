"""Forwarded ports in the app: the forms, the `:` line, copying, and why not."""

from __future__ import annotations

import socket
from dataclasses import replace

from textual.pilot import Pilot
from textual.widgets import Input

from quicksand_tui.actions import reasons
from quicksand_tui.actions.all_actions import find_action
from quicksand_tui.forms.verb_forms import (
    copy_of,
    find_forward_problem,
    find_taken,
    find_unforward_problem,
    forward_form,
    unforward_form,
)
from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.world import MachineView, Selection
from quicksand_tui.screens.command_line import CommandScreen
from quicksand_tui.screens.form import FormScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.verbs.ports import forward
from tests.each import each
from tests.unit.app.fakes import (
    DB,
    FULL,
    PAUSED,
    WEB,
    FakeService,
    screen_text,
    select,
    shown,
    toasts,
    until,
)

MADE = replace(WEB, ports=((8080, 80), (9000, 90), (9001, 91)), forwards=((9000, 90), (9001, 91)))
WITH_MADE = replace(FULL, sandboxes=(MADE, DB, PAUSED))
BARE = replace(WEB, ports=())
WITH_DNS = replace(BARE, udp_ports=((5353, 53),), udp_forwards=((5353, 53),))


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port: int = asked.getsockname()[1]
        return port


def last_command(app: QuicksandApp) -> tuple[str, str]:
    record = app.operations.log[-1]
    return record.command, record.outcome


async def test_a_port_is_forwarded_and_its_address_copied() -> None:
    port = free_port()
    service = FakeService(replace(FULL, sandboxes=(BARE, DB)))
    async with shown(service, size=(160, 45)) as (app, pilot):
        await pilot.press("p")
        await until(lambda: isinstance(app.screen, FormScreen))
        await until(lambda: isinstance(app.focused, Input))
        await until(lambda: "forward web GUEST" in screen_text(app))
        await pilot.press(*"80", "tab", *str(port))
        await until(lambda: f"forward web {port}:80" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: toasts(app))
        assert service.calls[-1] == f"forward {WEB.id} {port}:80 tcp"
        assert toasts(app) == [f"127.0.0.1:{port} leads to port 80 of web: Y copies it"]
        assert last_command(app) == (f"quicksand-tui forward web {port}:80", "done")
        await until(lambda: f"http://127.0.0.1:{port} → 80" in screen_text(app))
        await pilot.press("Y")
        await until(lambda: app.clipboard == f"127.0.0.1:{port}")
        # With another one, it is asked which.
        app.operations.do(forward(["22"]), BARE)
        await until(lambda: "127.0.0.1:40000 → 22" in screen_text(app))
        await pilot.press("Y")
        await until(lambda: isinstance(app.screen, FormScreen))
        await until(lambda: app.focused is not None)
        await pilot.press("right", "enter")
        await until(lambda: app.screen is app.main)
        first, second = sorted((port, 40_000))
        await until(lambda: app.clipboard == f"127.0.0.1:{second}")
        assert first != second


async def test_a_forward_is_ended_and_gone_from_what_is_shown() -> None:
    service = FakeService(WITH_MADE)
    async with shown(service, size=(160, 45)) as (app, pilot):
        await until(lambda: "127.0.0.1:9001 → 91" in screen_text(app))
        await pilot.press("e")
        await until(lambda: isinstance(app.screen, FormScreen))
        await until(lambda: "forward --remove web 9000" in screen_text(app))
        assert "8080" not in screen_text(app).split("End a forward")[1].split("Cancel")[0]
        await until(lambda: app.focused is not None)
        await pilot.press("right")
        await until(lambda: "--remove web 9001" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: toasts(app))
        assert service.calls[-1] == f"unforward {WEB.id} 9001 tcp"
        assert toasts(app) == ["127.0.0.1:9001 leads no longer to web"]
        await until(lambda: "9001 → 91" not in screen_text(app))
        assert "9000 → 90" in screen_text(app)


async def test_datagrams_are_forwarded_copied_and_ended_too() -> None:
    service = FakeService(replace(FULL, sandboxes=(WITH_DNS, DB)))
    async with shown(service, size=(160, 45)) as (app, pilot):
        await pilot.press("p")
        await until(lambda: isinstance(app.screen, FormScreen))
        await until(lambda: isinstance(app.focused, Input))
        await pilot.press(*"67", "tab", "tab", "right")
        await until(lambda: "forward web 67/udp" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: toasts(app))
        assert service.calls[-1] == f"forward {WEB.id} 0:67 udp"
        service.set_forwards(WEB.id, ())
        await until(lambda: app.screen is app.main and "40000 →" not in screen_text(app))
        await pilot.press("Y")
        await until(lambda: app.clipboard == "127.0.0.1:5353")
        await pilot.press("e")
        await until(lambda: "forward --remove web 5353/udp" in screen_text(app))
        await until(lambda: app.focused is not None)
        await pilot.press("enter")
        await until(lambda: f"unforward {WEB.id} 5353 udp" in service.calls)


async def test_what_cannot_be_forwarded_says_why() -> None:
    service = FakeService(WITH_MADE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with shown(service) as (app, pilot):
            await pilot.press("p")
            await until(lambda: isinstance(app.focused, Input))
            await pilot.press(*"70000", "tab", *str(port))
            await until(lambda: "a number from 1 to 65535" in screen_text(app))
            await until(lambda: f"another program has port {port}" in screen_text(app))
            await pilot.press("enter")
            await pilot.pause()
            assert isinstance(app.screen, FormScreen)
            assert not [call for call in service.calls if call.startswith("forward")]


def test_the_checks_of_the_form() -> None:
    form = forward_form(WEB)
    tcp, udp = {"protocol": "tcp"}, {"protocol": "udp"}
    assert form.problems({"guest": "80", "host": "", **tcp}, WITH_MADE) == {}
    assert set(form.problems({"guest": "", "host": "²", **tcp}, WITH_MADE)) == {"guest", "host"}
    assert form.problems({"guest": "0", "host": "9000", **tcp}, WITH_MADE) == {
        "guest": "a number from 1 to 65535",
        "host": "it leads to web already",
    }
    assert form.problems({"guest": "53", "host": "9000", **udp}, WITH_MADE) == {}
    with_dns = replace(FULL, sandboxes=(WITH_DNS,))
    assert "host" in form.problems({"guest": "53", "host": "5353", **udp}, with_dns)
    assert form.problems({"guest": "53", "host": "5353", **tcp}, with_dns) == {}
    assert find_taken(9000, replace(WITH_MADE, sandboxes=())) == ""
    assert find_forward_problem("80", WITH_MADE) == ""
    assert find_forward_problem("9000:80", WITH_MADE) == "port 9000: it leads to web already"
    assert "HOST:GUEST" in find_forward_problem("a:b", WITH_MADE)
    dns = replace(MADE, udp_ports=((5353, 53),), udp_forwards=((5353, 53),))
    assert find_unforward_problem("5353/udp", dns) == ""
    assert "port 9000/udp is not forwarded" in find_unforward_problem("9000/udp", dns)
    gone = replace(WITH_MADE, sandboxes=(WEB,))
    assert unforward_form(MADE).problems({"port": ""}, gone) == {"port": "it has ended"}


@each(
    ("action", "view", "why"),
    [
        ("forward", WEB, None),
        ("forward", DB, "db does not run: a starts it"),
        ("forward", PAUSED, "builder is paused: P resumes it"),
        ("unforward", MADE, None),
        ("unforward", WEB, "the forwards of web are those of its start, and end with it"),
        ("unforward", WITH_DNS, None),
        ("unforward", BARE, "no port is forwarded to web: p forwards one"),
        ("unforward", DB, "no port is forwarded to db: p forwards one, while it runs"),
        ("copy_port", WEB, None),
        ("copy_port", WITH_DNS, None),
        ("copy_port", BARE, "no port is forwarded to web: p forwards one"),
    ],
)
def test_why_not(action: str, view: SandboxView, why: str | None) -> None:
    assert find_action(action).disabled_reason(FULL, Selection(sandbox=view)) == why
    read_only = replace(FULL, read_only=True)
    expected = why if action == "copy_port" else reasons.READ_ONLY
    assert find_action(action).disabled_reason(read_only, Selection(sandbox=view)) == expected


async def type_line(app: QuicksandApp, pilot: Pilot[int], line: str) -> None:
    await pilot.press("colon")
    await until(lambda: isinstance(app.screen, CommandScreen))
    await until(lambda: isinstance(app.focused, Input))
    await pilot.press(*line, "enter")


async def test_the_line_forwards_and_ends() -> None:
    service = FakeService(WITH_MADE)
    async with shown(service) as (app, pilot):
        await select(pilot, MADE)
        await type_line(app, pilot, "forward . 7000:70")
        await until(lambda: f"forward {WEB.id} 7000:70 tcp" in service.calls)
        await until(lambda: app.screen is app.main and not app.operations.jobs)
        await type_line(app, pilot, "unforward web 8080")
        await until(lambda: "is not forwarded to web" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        await type_line(app, pilot, "unforward web 9000")
        await until(lambda: f"unforward {WEB.id} 9000 tcp" in service.calls)
        await until(lambda: app.screen is app.main and not app.operations.jobs)
        await type_line(app, pilot, "forward . 9001:53/udp")  # a port of UDP is another one
        await until(lambda: f"forward {WEB.id} 9001:53 udp" in service.calls)
        await until(lambda: app.screen is app.main and not app.operations.jobs)
        await type_line(app, pilot, "forward")
        await until(lambda: isinstance(app.screen, FormScreen))


def test_the_commands_are_those_that_do_the_same() -> None:
    assert forward(["8080:80"]).command_for("web") == "quicksand-tui forward web 8080:80"
    assert forward(["80"]).command_for("web") == "quicksand-tui forward web 80"
    assert forward(["5353:53/udp"]).command_for("web") == "quicksand-tui forward web 5353:53/udp"
    assert (
        forward(["8080"], remove=True).command_for("web")
        == "quicksand-tui forward --remove web 8080"
    )


def test_what_leads_to_a_port_of_another_machine_is_copied() -> None:
    box = MachineView(name="box", address="ssh://me@box:2222")
    node = MachineView(name="node-1", address="node://node-1")
    for machine in (None, node):
        assert copy_of("8080", machine).text == "127.0.0.1:8080"
        assert copy_of("53/udp", machine).text == "127.0.0.1:53"
    copied = copy_of("8080", box)
    assert copied.text == "ssh -N -L 8080:127.0.0.1:8080 -p 2222 me@box"
    assert copied.text in copied.told
    assert "127.0.0.1:8080 is box's" in copied.told
    assert copy_of("80", box).text.startswith("ssh -N -L 8080:127.0.0.1:80 ")
    assert copy_of("53/udp", box) == ("", "127.0.0.1:53/udp is box's: ssh brings no UDP here")


async def test_a_port_of_another_machine_is_not_shown_as_ours() -> None:
    far = replace(WEB, id="box/1", name="far", host="box")
    box = MachineView(name="box", address="ssh://box")
    service = FakeService(replace(FULL, sandboxes=(far,), machines=(box,)))
    async with shown(service, size=(160, 45)) as (app, pilot):
        await select(pilot, far)
        await until(lambda: "127.0.0.1:8080 of box → 80" in screen_text(app))
        await pilot.press("Y")
        await until(lambda: app.clipboard == "ssh -N -L 8080:127.0.0.1:8080 box")
        await until(lambda: any("is box's" in told for told in toasts(app)))
