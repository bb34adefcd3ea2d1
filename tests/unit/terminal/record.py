"""Records what real programs write, and what tmux makes of it: the data of `test_recordings`.

sudo .venv/bin/python -m tests.unit.terminal.record [NAME...]

Needs root (for namespaces: the programs see a machine called "sandbox" with a small home directory
and no processes but theirs, so nothing of this machine is recorded), tmux, and the programs; what
is not installed is left out. Each recording is ``NAME.bin``, what the program wrote, and
``NAME.json``, the screen that tmux showed for it.
"""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path

from quicksand_vt import Terminal

from tests.unit.terminal.tmux import COLUMNS, ROWS, tmux_screen

PLACE = Path(__file__).with_name("recordings")
HOME = Path("/home/user")
QUIET_S = 0.7
"""So long must a program be silent until it gets the next keys."""
BYTES_MAX = 60_000

ENVIRONMENT = {
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "LANG": "C.UTF-8",
    "HOME": str(HOME),
    "USER": "user",
    "LOGNAME": "user",
    "SHELL": "/bin/bash",
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "PS1": r"\[\e[32m\]user@sandbox\[\e[m\]:\[\e[34m\]\w\[\e[m\]$ ",
    "GIT_AUTHOR_DATE": "2024-03-01T12:00:00Z",
    "GIT_COMMITTER_DATE": "2024-03-01T12:00:00Z",
    "GIT_CONFIG_COUNT": "0",
    "LESSHISTFILE": "-",
}


EMOJI = (
    "🚀 a rocket 👍🏽 a thumb with a skin tone, 漢字",
    "❤\ufe0f a heart, ☝🏽 a hand, 1\ufe0f\u20e3 a keycap word",
    "🇩🇪🇫🇷 flags ☎\ufe0f ✈\ufe0f and é words",
    "🎉✨⭐ emoji 😀 of 🐍 one code point",
)
"""Without joiners: what vim counts for those, tmux does not."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A program and what is typed into it; it is still running at the end."""

    name: str
    argv: tuple[str, ...]
    keys: tuple[str, ...] = ()


ALONE = (
    *("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
    *("sh", "-c", 'sleep 1000 & sleep 2000 & exec "$@"', "sh"),
)
"""How each program is run: it sees no process but two, and those that it starts."""

BASH = ("bash", "--norc", "--noprofile", "-i")

RECORDINGS = (
    Recording(
        "vim",
        ("vim", "-u", "NONE", "-N", "-i", "NONE", "-n", "--cmd", "syntax on", "code.py"),
        (
            ":set number hlsearch termguicolors background=dark\r",
            "10jzt",
            "/self\r",
            "Oinserted line with 漢字 and é\x1b",
            ":vsplit text.txt\r",
            "G",
            "dd",
            ":set list\r",
            "\x15",
        ),
    ),
    Recording(
        "vim_scrolling",
        ("vim", "-u", "NONE", "-N", "-i", "NONE", "-n", "--cmd", "syntax on", "code.py"),
        ("\x05" * 10, "\x19" * 3, "\x06", "ggVGJ", "u", ":5,9d\r", "p", "10>>", "\x15"),
    ),
    Recording(
        "nano", ("nano", "--ignorercfiles", "code.py"), ("\x1b[B" * 30, "new text\r", "\x0b\x0b")
    ),
    Recording("less", ("less", "-N", "text.txt"), ("  ", "b", "/line 3\r", "nn", "G", "\x02")),
    Recording("less_colours", ("less", "-R", "colours.txt"), (" ", "jjj", "kk")),
    Recording("man", ("man", "less"), (" ", "jj")),
    Recording("htop", ("htop", "--delay=100"), ("\x1b[B", "t", "\x1bOQ", "\x1b[B")),
    # Narrower than the screen: it erases behind the last column, where tmux is not like xterm.
    Recording("top", ("top", "-d", "100", "-w", "78"), ("z", "x", "c", "1")),
    Recording(
        "mc",
        ("mc", "--nosubshell", "--nomouse"),
        ("\t", "\x1b[B\x1b[B", "\x1bOR"),
    ),
    Recording(
        "vim_emoji",
        ("vim", "-u", "NONE", "-N", "-i", "NONE", "-n", "--cmd", "syntax on", "emoji/lines.txt"),
        (
            ":set number list cursorline\r",
            "jjA 🚀 appended 👍🏽 text\x1b",
            "0llx",
            "/word\r",
            "ncwchanged\x1b",
            "yyp",
            ":vsplit\r",
            "Gzb",
        ),
    ),
    Recording(
        "mc_emoji",
        ("mc", "--nosubshell", "--nomouse", "emoji", "emoji"),
        ("\x1b[B\x1b[B", "\t", "\x1b[B\x1b[B\x1b[B", "\x1bOS", "\x1b[B\x1b[B"),
    ),
    Recording(
        "htop_emoji",
        ("bash", "-c", f"(exec -a '{EMOJI[0]}' sleep 3000) & exec htop --delay=100"),
        ("\x1b[B", "\x1b[B", "/👍🏽"),
    ),
    Recording(
        "git_log",
        ("git", "-c", "core.pager=less -R -+F", "log", "--graph", "--stat", "--color"),
        ("jjj", " "),
    ),
    Recording(
        "bash",
        BASH,
        (
            "ls -l --color=always\r",
            "echo a line that goes on and on until it is at the end of the screen and some more",
            "\x1b[D" * 40,
            "INSERTED ",
            "\x01",
            "x\x04\x0b\x19",
            "\r",
            "echo 'wide 漢字 and e\u0301'\r",
            "\x12ls",
            "\x07",
            "for i in 1 2 3; do\rprintf '%-20s|\\n' $i\rdone\r",
            "cat colours.txt\r",
            "unfin\x1b[Aished",
        ),
    ),
    Recording(
        "tmux",
        ("tmux", "-L", "recording", "-f", "/dev/null", "new-session", *BASH),
        (
            "ls --color=always\r",
            "\x02%",
            "seq 100\r",
            '\x02"',
            "cat colours.txt\r",
            "\x02\x1b[A",
            "\x02z",
            "\x02z",
            "\x02[",
            "\x1b[5~",
        ),
    ),
    Recording(
        "clear",
        BASH,
        ("seq 60\r", "clear\r", "seq 5\r", "tput smcup; tput cup 5 5; echo x; tput rmcup\r"),
    ),
)


def make_home() -> None:
    """A home directory for the programs, of which everything may be known."""
    HOME.mkdir(parents=True)
    os.chdir(HOME)
    code = "\n".join(
        f'def function_{n}(self, value: int = {n}) -> str:\n    """Says {n}."""\n'
        f'    if value > {n * 7}:\n        return f"{{self.name}} {n}"  # comment {n}\n'
        for n in range(40)
    )
    Path("code.py").write_text(code)
    lines = [
        f"line {n}: " + "words and words " * (n % 9) + ("漢字 é" if n % 5 == 0 else "")
        for n in range(200)
    ]
    Path("text.txt").write_text("\n".join(lines) + "\n")
    colours = [
        "".join(f"\x1b[38;5;{n}m{n:4}\x1b[0m" for n in range(row, row + 16))
        for row in range(0, 256, 16)
    ]
    attributes = {1: "bold", 2: "dim", 3: "italic", 4: "under", 7: "reverse", 9: "strike"}
    colours += [" ".join(f"\x1b[{code}m{name}\x1b[m" for code, name in attributes.items())]
    colours += ["".join(f"\x1b[48;2;{n * 3};{255 - n * 3};90m \x1b[m" for n in range(80))]
    Path("colours.txt").write_text("\n".join(colours) + "\n")
    Path("directory").mkdir()
    Path("emoji").mkdir()
    Path("emoji/lines.txt").write_text(
        "".join(f"{line}\n{n} words\n" for n, line in enumerate(EMOJI))
    )
    for line in EMOJI:
        Path("emoji", line).write_text(line)
    Path("link").symlink_to("text.txt")
    for command in (
        ("git", "init", "-q", "-b", "main"),
        ("git", "config", "user.name", "User"),
        ("git", "config", "user.email", "user@example.org"),
    ):
        subprocess.run(command, check=True, env=ENVIRONMENT)
    for n in range(12):
        Path(f"file{n}.txt").write_text("text\n" * n)
        subprocess.run(("git", "add", f"file{n}.txt"), check=True, env=ENVIRONMENT)
        subprocess.run(
            ("git", "commit", "-qm", f"Add file {n}\n\nBecause of reason {n}."),
            check=True,
            env=ENVIRONMENT,
        )


def record(recording: Recording) -> bytes:
    """What the program writes. It gets the answers of our terminal to what it asks."""
    terminal = Terminal(COLUMNS, ROWS)
    pid, descriptor = pty.fork()
    if pid == 0:
        os.execvpe(ALONE[0], (*ALONE, *recording.argv), ENVIRONMENT)
    termios.tcsetwinsize(descriptor, (ROWS, COLUMNS))
    written = b""
    for keys in ("", *recording.keys):
        os.write(descriptor, keys.encode())
        while select.select([descriptor], [], [], QUIET_S)[0] and len(written) < BYTES_MAX:
            try:
                data = os.read(descriptor, 65536)
            except OSError:
                break
            written += data
            terminal.feed(data)
            os.write(descriptor, terminal.take_replies())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(descriptor)
    return written


def main() -> None:
    if os.environ.get("RECORDING") != "1":
        command = ("unshare", "--mount", "--uts", sys.executable)
        os.execvpe(
            command[0],
            (*command, "-m", "tests.unit.terminal.record", *sys.argv[1:]),
            {**os.environ, "RECORDING": "1"},
        )
    subprocess.run(("hostname", "sandbox"), check=True)
    PLACE.mkdir(exist_ok=True)
    # What is mounted hides what was there, and with it perhaps this very file's directory.
    place = os.open(PLACE, os.O_PATH)
    for directory in ("/home", "/tmp"):
        subprocess.run(("mount", "-t", "tmpfs", "tmpfs", directory), check=True)
    make_home()
    for recording in RECORDINGS:
        if sys.argv[1:] and recording.name not in sys.argv[1:]:
            continue
        if shutil.which(recording.argv[0]) is None:
            print(f"{recording.name}: {recording.argv[0]} is not installed")
            continue
        os.chdir(HOME)
        data = record(recording)
        os.chdir(f"/proc/self/fd/{place}")
        Path(f"{recording.name}.bin").write_bytes(data)
        screen = tmux_screen(data)
        Path(f"{recording.name}.json").write_text(
            json.dumps(screen, ensure_ascii=False, indent=1) + "\n"
        )
        print(f"{recording.name}: {len(data)} bytes")


if __name__ == "__main__":
    main()
