"""Asks the guest itself about its screen, its pointer and its keyboard, by small scripts that its
agent runs. The guest may answer anything, so all of it is bounded and checked here."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from dataclasses import dataclass

from quicksand.base.errors import AgentError
from quicksand.display.hands import ABS_MAX, place_on
from quicksand.guest.agent.session import Session
from quicksand.guest.execution import ExecuteResult, command_params, run, spawn

ANSWER_S = 5.0
"""Seconds for an answer. An emulated guest takes a tenth of one, a busy one more."""

NO_TOOL, NO_SCREEN = 97, 98
"""Exit codes of scripts: a tool is missing; no X server answers."""

SIDE_MAX = 32768
"""Pixels of a side of an X server's screen (X protocol)."""

CELLS_MAX = 512 * 512
"""The most characters of a text console that are read."""

TITLES_MAX = 65536
"""The most characters of windows' titles that are read."""


def find_server(probe: str) -> str:
    """A script that finds the X server of the desktop, as root, by running ``probe`` until that
    succeeds; it ends with NO_SCREEN if it never does."""
    return f"""\
: "${{DISPLAY:=:0}}"
export DISPLAY
found=
for cookie in "${{XAUTHORITY:-}}" /var/run/lightdm/root/:0 /home/*/.Xauthority; do
    if [ -n "$cookie" ]; then export XAUTHORITY="$cookie"; fi
    if {probe} 2>/dev/null; then found=yes; break; fi
done
[ -n "$found" ] || exit {NO_SCREEN}
"""


def need_tools(tools: str) -> str:
    """A script that ends with NO_TOOL unless the guest has all of these."""
    return f"""\
for tool in {tools}; do
    command -v "$tool" >/dev/null || exit {NO_TOOL}
done
"""


LAYOUT = need_tools("xprop") + find_server("xprop -root -notype _XKB_RULES_NAMES")
POINTER = (
    need_tools("xdotool")
    + find_server("xdotool getmouselocation --shell")
    + "exec xdotool getdisplaygeometry\n"
)
IS_X_SHOWN = "xprop -root -notype XFree86_has_VT | grep -v '= 0$' >/dev/null"
"""Whether the X server has the console, which it may have given to a text console."""

SHOWN = f"""\
titles() (
{need_tools("xdotool xprop")}{find_server("xdotool getmouselocation >/dev/null")}\
    {IS_X_SHOWN} || exit
    echo titles
    xdotool search --onlyvisible --name '' getwindowname %@ 2>/dev/null | head -c {TITLES_MAX}
)
titles && exit
console=$(cat /sys/class/tty/tty0/active) || exit {NO_SCREEN}
console=${{console#tty}}
[ -r "/dev/vcsa$console" ] || exit {NO_SCREEN}
echo console
od -An -tu1 -N2 "/dev/vcsa$console"
head -c {4 * CELLS_MAX} "/dev/vcsu$console" | base64
"""
"""Prints the titles of the X server's windows, or the text console's contents (vcs(4))."""

RENAMED = """\
command -v on-desktop >/dev/null && pidof xfwm4 >/dev/null || exit 0
setsid on-desktop xfwm4 --replace </dev/null >/dev/null 2>&1 &
"""
"""Restarts Xfce's window manager. It reads the host's name once, and adds "(on HOST)" to the title
of each window of another host, which all new ones are after the guest got another name."""

DRIVER = "[ -d /sys/bus/virtio/drivers/virtio_gpu ] || modprobe -q -n virtio_gpu"
"""Ends with 0 if the kernel has the screen's driver, or can load it later."""

US = '"us", ""'
RULES = re.compile(r'_XKB_RULES_NAMES = "[^"]*", "[^"]*", ("[^"]*", "[^"]*")')
"""The form of xprop's answer about the keyboard: rules, model, layout, variant, options."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """The pointer of an X server, in pixels of its screen."""

    x: int
    y: int
    width: int
    height: int

    @classmethod
    def parse(cls, said: str) -> Pointer | None:
        """Read the output of POINTER; None if it has another form."""
        found = re.match(r"X=(\d{1,5})\nY=(\d{1,5})\n", said)
        size = re.search(r"^(\d{1,5}) (\d{1,5})$", said[:1000], re.MULTILINE)
        if found is None or size is None:
            return None
        x, y, width, height = (int(word) for word in (*found.groups(), *size.groups()))
        if not (x < width <= SIDE_MAX and y < height <= SIDE_MAX):
            return None
        return cls(x, y, width, height)

    def is_at(self, place: tuple[int, int]) -> bool:
        """Whether the pointer is at the position to which ``place`` leads, within a pixel."""
        at = (place[0] * self.width // (ABS_MAX + 1), place[1] * self.height // (ABS_MAX + 1))
        return abs(at[0] - self.x) <= 1 and abs(at[1] - self.y) <= 1

    @property
    def place(self) -> tuple[int, int]:
        """Return the place that moves the pointer to its present position."""
        return place_on((self.width, self.height), self.x, self.y)


async def find_pointer(session: Session) -> Pointer | None:
    """Return the position of the pointer of the guest's X server; None if the guest cannot tell."""
    said = await _try(session, POINTER)
    return None if said is None else Pointer.parse(said)


async def has_other_layout(session: Session) -> bool:
    """Whether the guest's X server has a keyboard layout that is not the US one; False if the guest
    cannot tell."""
    said = await _try(session, LAYOUT)
    rules = None if said is None else RULES.search(said[:1000])
    return rules is not None and rules[1] != US


async def tell_name(session: Session) -> None:
    """Tell the guest's desktop the new name of its host, if it has one that must be told. It takes
    a second, for which nobody waits."""
    await _try(session, RENAMED)


async def has_driver(session: Session) -> bool:
    """Whether the guest has the driver of the screen. Raises AgentError."""
    return (await ask(session, DRIVER, timeout=ANSWER_S)).exit_code == 0


async def find_texts(session: Session) -> list[str] | None:
    """Return the texts that the guest shows, as far as it can tell: the rows of its text console,
    all of them joined, and each; or the titles of its X server's windows. None if it cannot
    tell."""
    said = await _try(session, SHOWN)
    if said is None:
        return None
    kind, _, rest = said.partition("\n")
    if kind == "console":
        return _read_console(rest)
    return [title for title in rest[:TITLES_MAX].splitlines() if title]


def _read_console(said: str) -> list[str] | None:
    size, _, encoded = said.partition("\n")
    try:
        rows, columns = (int(word) for word in size.split())
        data = base64.b64decode(encoded[: 8 * CELLS_MAX])
    except (ValueError, binascii.Error):
        return None
    length = 4 * rows * columns
    if min(rows, columns) < 1 or len(data) < length:
        return None
    # Each cell is a code point of 32 bits (Linux, drivers/tty/vt/vc_screen.c).
    text = data[:length].decode("utf-32-le", "replace")
    lines = [text[start : start + columns] for start in range(0, len(text), columns)]
    return [*(line.rstrip() for line in lines), text]  # a text may continue on the next row


async def _try(session: Session, script: str) -> str | None:
    """Return the output of a script; None if it fails or does not end in time."""
    try:
        async with asyncio.timeout(ANSWER_S):
            result = await ask(session, script, timeout=ANSWER_S)
    except (AgentError, TimeoutError):
        return None
    return result.stdout if result.exit_code == 0 and not result.timed_out else None


async def ask(
    session: Session,
    script: str,
    *,
    timeout: float,
    stdin: str = "",
    env: dict[str, str] | None = None,
) -> ExecuteResult:
    """Run a script in the guest, as root. Raises AgentError."""
    params = command_params(script, timeout=timeout, cwd=None, shell="/bin/sh", user=None, env=env)
    command = await spawn(session, params, stdin=True)
    return await run(command, stdin=stdin, on_stdout=None, on_stderr=None)
