"""Compares the commands of this checkout with those of another one.

    python scripts/same_commands.py OLD_CHECKOUT

Each checkout runs by its own .venv, in a data directory of its own with a stopped sandbox, two
saves (one in the trash), an image and another machine's name; every call begins with that anew.
Compared are helps, man pages, scripts and words for completion as they are, and of calls, right
and wrong, the exit codes, the keys of what `--json` prints, and the messages, but for numbers and
paths. What differs is printed, and the exit code is 1 then. No VM is started, and nothing fetched.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

VERBS = """
import json
from quicksand_tui.verbs.index import all_verbs

def told(one):
    found = {"kind": one.kind.name, "flags": one.flags, "required": one.required}
    return {**found, "choices": [*one.all_choices] if one.kind.name == "CHOICE" else []}

verbs = [part for verb in all_verbs() for part in verb.walk()]
print(json.dumps({verb.name: [told(one) for one in verb.parameters] for verb in verbs}))
"""

MANUAL = "import json; from scripts import manual; print(json.dumps(manual.man_pages()))"

PREPARE = """
from quicksand.base.paths import paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.saves.store import SaveStore
from tests.unit.cli.run_cli import make_stopped
from tests.unit.disks.test_store import publish
from tests.unit.saves.making import make_save

paths().images.mkdir(parents=True)
publish(ImageStore(paths().images))
make_stopped(paths(), "stopped")
store = SaveStore(paths().saves)
make_save(store, "kept", b"1")
make_save(store, "gone", b"2")
store.remove("gone")
"""

FILLED = (
    "SANDBOX=stopped CHECKPOINT=tag TARGET=tag NEW_TAG=tag SAVE=kept EXPORTED=kept NEW_SAVE=new "
    "TRASHED=gone TRASHED_SAVE=gone STORED=debian FILE=no-file STREAM=no-file COPIED=stopped:/x "
    "HOST=box MOUNT=/home:/mnt MOUNTED=/mnt"
)
"""Words for the arguments of a right call, by their kinds; others are "word"."""

NOT_CALLED = {
    *("api", "benchmark", "config keys", "demo", "fleet up", "images build", "images warm"),
    *("install", "run", "saves fetch", "saves send", "serve", "setup", "ssh-gateway"),
}
"""Commands that would serve, ask a terminal, reach others, or start a VM."""

MORE_CALLS = """
; nosuch; --host; --host nosuch ps; --theme dark ps; --screen main; --screenshot x.txt; rm
run nosuch --no-build -- true; run stopped --no-build -- true; run --memory much debian
run debian --tty --detach; run debian --restart-elsewhere -- true; run debian --env =x -- true
exec stopped -- true; exec nosuch -- true; exec stopped; exec stopped --tty --json -- true
exec -x stopped -- true; shell stopped --json; cp no-file other; cp stopped:x here
cp no-file nosuch:/x; mount stopped no-path; mount stopped /mnt:/home:wrong
forward stopped --remove; forward stopped 99999:x; rm --all stopped; images rm nosuch
images inspect nosuch; images build --name x; saves rm nosuch; trash --json; images; saves
clean --dry-run --json; clean --json; stop --all; ps -a; ps -a --json; ps -q --all-processes
du --each; info no-file; key stopped nosuch+x; mouse stopped move; completions nosuch
config example --write; logs stopped -n -1; screenshot stopped x.png --region 1
ssh-config --dry-run; ssh-config --install --remove; ssh-gateway --listen nosuch
benchmark nosuch --runs 0; completions bash; completions zsh; completions fish
"""


class Checkout:
    """A checkout whose commands are called."""

    def __init__(self, root: Path, place: Path) -> None:
        self._root = root
        self._python = str(root / ".venv" / "bin" / "python")
        self._place = place
        self._prepared = place / "prepared"
        self._prepared.mkdir(parents=True)
        self.python(PREPARE, self._prepared)
        self._run(["-m", "quicksand_tui", "hosts", "add", "box", "ssh://box"], self._prepared)

    def python(self, code: str, place: Path | None = None) -> str:
        """Runs code with the modules of this checkout, its tests included."""
        ran = self._run(["-c", code], place or self._place, cwd=self._root)
        if ran.returncode:
            raise RuntimeError(f"{self._root}: {ran.stderr}")
        return ran.stdout

    def _run(
        self, words: list[str], place: Path, cwd: Path | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        env = {
            **kept,
            "COLUMNS": "100",
            "HOME": str(place),
            "XDG_RUNTIME_DIR": str(place),
            "QUICKSAND_CONFIG": str(place / "config.toml"),
            "QUICKSAND_SPARES": "off",
            **{
                f"QUICKSAND_{of}_DIR": str(place / of)
                for of in ("DATA", "CACHE", "STATE", "RUNTIME")
            },
            **more,
        }
        return subprocess.run(
            [self._python, *words],
            cwd=cwd or place,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def call(self, words: list[str], **more: str) -> str:
        """Calls a command in places as they were prepared; returns its exit code and what it said,
        in a form in which two checkouts can be compared."""
        place = Path(tempfile.mkdtemp(dir=self._place)) / "x"
        shutil.copytree(self._prepared, place, symlinks=True)
        ran = self._run(["-m", "quicksand_tui", *words], place, **more)
        text = keys_text(ran.stdout) if "--json" in words else ran.stdout
        text = f"{text}\n{ran.stderr}"
        for path, name in ((place, "PLACE"), (self._root, "CHECKOUT")):
            text = text.replace(str(path), name)
        if "--help" not in words and not more:
            text = re.sub(r"(\b|e2b_)[0-9a-f]{12,}\b", "ID", text)
            text = re.sub(r"[0-9]+(\.[0-9]+)?( [KMGT]i?B| B)?", "N", text)
            text = re.sub(r"[ ─]{2,}", "  ", text)
        shutil.rmtree(place.parent)
        return f"exit {ran.returncode}\n{text}"


def keys_text(text: str) -> str:
    """Returns only the keys of printed JSON, or of JSON on each line; other text as it is."""
    try:
        return json.dumps(keys_of(json.loads(text)), indent=1)
    except ValueError:
        pass
    try:
        return "\n".join(json.dumps(keys_of(json.loads(line))) for line in text.splitlines())
    except ValueError:
        return text


def keys_of(value: Any) -> Any:
    """Returns the keys of a value, and of those within it; a list has those of all its members."""
    if isinstance(value, dict):
        return {key: keys_of(one) for key, one in sorted(value.items())}
    if isinstance(value, list):
        members = {json.dumps(keys_of(one), sort_keys=True) for one in value}
        return [json.loads(one) for one in sorted(members)]
    return None


def calls_of(verbs: dict[str, list[dict[str, Any]]]) -> Iterator[list[str]]:
    """Yields calls of each command: its help, a wrong option, wrong values of options, no arguments
    where some are needed, a right call, and one of what is not there."""
    filled = dict(pair.split("=") for pair in FILLED.split())
    for name, parameters in verbs.items():
        verb = name.split()
        yield [*verb, "--help"]
        yield [*verb, "--no-such-option"]
        for one in parameters:
            if one["flags"] and one["kind"] in ("COUNT", "NUMBER", "CHOICE"):
                yield [*verb, one["flags"][-1], "no-such-value"]
        needed = [one for one in parameters if one["required"] and not one["flags"]]
        if needed:
            yield verb
        if name in NOT_CALLED:
            continue
        json_too = ["--json"] if any("--json" in one["flags"] for one in parameters) else []
        words = [(one["choices"] or [filled.get(one["kind"], "word")])[0] for one in needed]
        yield [*verb, *words, *json_too]
        yield [*verb, *words]
        if needed:
            yield [*verb, "nosuch", *words[1:]]
    yield from (call.split() for call in re.split("[;\n]", MORE_CALLS.strip()))


def main() -> int:
    old_root = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="same-") as made, ThreadPoolExecutor(2) as pool:
        both = [Checkout(root, Path(made) / name) for root, name in ((old_root, "o"), (ROOT, "n"))]
        verbs = json.loads(both[0].python(VERBS))
        texts = [("verbs", *(one.python(VERBS) for one in both))]
        pages = [json.loads(one.python(MANUAL)) for one in both]
        texts += [
            (page, *(one.get(page, "") for one in pages)) for page in {**pages[0], **pages[1]}
        ]
        calls = [([*words], {}) for words in dict.fromkeys(map(tuple, calls_of(verbs)))]
        for name in ["", *verbs]:
            words = f"quicksand-tui {name} ".replace("  ", " ")
            asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()))}
            calls.append(([], {"_QUICKSAND_TUI_COMPLETE": "bash_complete", **asked}))
        called = [[pool.submit(one.call, words, **more) for one in both] for words, more in calls]
        for (words, more), answers in zip(calls, called, strict=True):
            label = " ".join(words) or more.get("COMP_WORDS", "")
            texts.append((label, *(answer.result() for answer in answers)))
    differing = [(label, old, new) for label, old, new in texts if old != new]
    for label, old, new in differing:
        print(f"== {label}")
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
        print(*lines, sep="\n")
    print(f"{len(texts)} compared, {len(differing)} differ")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
