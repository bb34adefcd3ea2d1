"""Pictures that programs in a guest draw: in tmux as half cells, in a terminal with kitty's
protocol as images, there also by an app that comes later."""

from __future__ import annotations

import re
from base64 import b64encode

import pytest
from PIL import Image
from quicksand_pixels.placeholders import PLACEHOLDER

from tests.conftest import wait_for
from tests.e2e.test_app_tmux import APP, in_guest, left_clean, nothing_runs_on, start_sandbox
from tests.e2e.tmux import Terminal
from tests.pty_terminal import WHOLE, PtyTerminal
from tests.unit.pixels.guest import png

__all__ = ["nothing_runs_on"]

pytestmark = pytest.mark.vm

RED, BLUE = "48;2;255;0;0", "48;2;0;0;255"
SIXELS = r"printf '\033P7;1q#1;2;100;0;0#1!60~-!60~-!60~-!60~\033\134\n'"
KITTY = r"""printf '\033_Ga=T,f=100,i=7,q=2;%s\033\134\n' "$(cat /root/blue)" """
ASK = (
    r"stty raw -echo min 0 time 20; "
    r"printf '\033_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\033\134\033[c\033[16t'; "
    "cat > /root/told; stty sane; echo $((6 * 7))-asked"
)


def run(terminal: Terminal, command: str) -> None:
    terminal.type(command)
    terminal.press("Enter")


def test_programs_in_a_guest_draw_pictures_in_their_shell() -> None:
    blue = b64encode(png(Image.new("RGB", (60, 40), "#0000ff"))).decode()
    with Terminal(APP, columns=120, rows=36, COLORTERM="truecolor") as terminal:
        start_sandbox(terminal)
        in_guest(f"echo {blue} > /root/blue")
        terminal.press("s")
        terminal.sees("root@debian-1")
        run(terminal, SIXELS)
        wait_for(lambda: RED in terminal.coloured, what="a red picture")
        run(terminal, KITTY)
        wait_for(lambda: BLUE in terminal.coloured, what="a blue picture")
        assert PLACEHOLDER not in terminal.text
        run(terminal, ASK)
        terminal.sees("42-asked")
        told = in_guest("cat /root/told")
        assert "\x1b_Gi=31;OK\x1b\\\x1b[?64;4;" in told, told
        assert re.search(r"\x1b\[6;\d+;\d+t", told), "the size of a cell"
        terminal.prefixed("d")
        terminal.press("q")
        left_clean(terminal, 0)
    with PtyTerminal(APP, columns=120, rows=36, answers=WHOLE) as again:
        again.sees("debian-1", timeout=60)
        again.type(b"s")
        wait_for(lambda: again.text.count(PLACEHOLDER) >= 12, what="both pictures as images")
        wait_for(lambda: again.output.count(b"a=T,U=1") >= 2, what="their pixels")
        again.type(b"clear\r")
        wait_for(lambda: PLACEHOLDER not in again.text, what="a clear screen")
        again.type(b"\x1dd")
        again.sees("q quit")
        assert again.quits() == 0
        assert b"a=d,d=I" in again.output
