"""Remedies for errors, as data.

The engine is used from Python and from the command line, and each says the same remedy in its own
words: ``Sandbox.open('web').start()`` here, a command there. So an error does not hold the words,
but a `Remedy`, and `Words` around it::

    Words(Remedy("start", name=name), " starts it")

As text, `Words` speak Python; the command line passes its own way to say a remedy to `Words.said`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

Verb = Literal[
    "add_host", "build_any_image", "build_image", "build_image_for", "checkpoint",
    "checkpoint_without_9p", "clean", "du", "end", "end_and_trash", "export_full",
    "fleet_down", "fleet_status",
    "fleet_up", "fleet_up_local", "fleet_up_ray", "fleet_up_ray_local", "get_qemu", "get_qemu_for",
    "import_bundle", "install", "install_for", "key", "list", "list_saves", "list_trash",
    "list_trashed_saves", "logs", "mount", "mouse_move", "remove", "remove_checkpoint",
    "remove_image", "restore", "restore_as", "restore_save_as", "resume", "run_with_display",
    "save", "setup", "setup_image", "setup_image_for", "start", "start_at", "trash", "tree",
]  # fmt: skip
"""The kind of a remedy."""

PYTHON: Mapping[Verb, str] = {
    "build_any_image": "`quicksand_images.build_image()`",
    "build_image": "`quicksand_images.build_image({name!r})`",
    "build_image_for": "`quicksand_images.build_image({name!r}, arch={arch!r})`",
    "checkpoint": "`Sandbox.attach({name!r}).checkpoint()`",
    "checkpoint_without_9p": "`checkpoint(unmount_9p=True)`",
    "end": "`Sandbox.open({name!r}, to_end_it=True).kill()`",
    "end_and_trash": "`Sandbox.open({name!r}, to_end_it=True).trash()`",
    "fleet_status": "`Fleet.open().hosts()`",
    "import_bundle": "`quicksand.saves.import_({file!r})`",
    "list": "`Sandbox.list()`",
    "list_saves": "`quicksand.saves.list()`",
    "logs": "`logs()`",
    "mount": "`mount()`",
    "remove_checkpoint": "`Sandbox.open({name!r}).delete_checkpoint({id!r})`",
    "restore": "`Sandbox.restore({name!r})`",
    "restore_as": "`Sandbox.restore({id!r}, name='NEW')`",
    "restore_save_as": "`quicksand.saves.restore({id!r}, new_name='NEW')`",
    "resume": "`Sandbox.attach({name!r}).resume()`",
    "save": "`save()`",
    "setup_image": "`quicksand_images.build_image({name!r})`",
    "setup_image_for": "`quicksand_images.build_image({name!r}, arch={arch!r})`",
    "start": "`Sandbox.open({name!r}).start()`",
    "start_at": "`Sandbox.open({name!r}).start(at={at!r})`",
    "trash": "`Sandbox.open({name!r}).trash()`",
    "tree": "`Sandbox.open({name!r}).checkpoints()`",
}
"""The Python words for each remedy. One without words has no call: its `Words` say something
else."""


class _Value:
    """A value that is never changed. (Not a dataclass: every command loads this module, and making
    two dataclasses takes 0.7 ms.)"""

    __slots__: tuple[str, ...] = ()

    def _facts(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self._facts()!r}"


class Remedy(_Value):
    """Something that can be done, with its arguments by name."""

    __slots__ = ("args", "verb")

    def __init__(self, verb: Verb, /, **args: str) -> None:
        self.verb: Verb = verb
        self.args = tuple(args.items())

    def fill(self, pattern: str, quote: Callable[[str], str] = str) -> str:
        """Put the arguments, each as ``quote`` writes it, into a pattern for `str.format`."""
        return pattern.format(**{name: quote(value) for name, value in self.args})


Say = Callable[[Remedy], str]
"""How a face says a remedy."""


class Words(_Value):
    """A text with remedies in it. Users of Python get ``python`` instead, where they would do
    something else."""

    __slots__ = ("parts", "python")

    def __init__(self, *parts: str | Remedy | Words, python: str = "") -> None:
        self.parts = parts
        self.python = python

    def said(self, say: Say) -> str:
        """Return the text, with each remedy in the words of ``say``."""
        return "".join(_said(part, say) for part in self.parts)

    def __str__(self) -> str:
        if self.python:
            return self.python
        return "".join(str(p) if isinstance(p, Words) else _said(p, _in_python) for p in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Return JSON for another process (`from_json`)."""
        parts = [
            part
            if isinstance(part, str)
            else {"verb": part.verb, "args": dict(part.args)}
            if isinstance(part, Remedy)
            else part.to_json()
            for part in self.parts
        ]
        return {"parts": parts, "python": self.python}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Words:
        """Read the result of `to_json` from another process of ours. Raises ValueError."""
        try:
            parts = [_read_part(part) for part in value["parts"]]
            return cls(*parts, python=str(value["python"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("these are no words of ours") from error


def _said(part: str | Remedy | Words, say: Say) -> str:
    match part:
        case str():
            return part
        case Remedy():
            return say(part)
        case Words():
            return part.said(say)


def _in_python(remedy: Remedy) -> str:
    return remedy.fill(PYTHON[remedy.verb])


def _read_part(part: Any) -> str | Remedy | Words:
    if isinstance(part, str):
        return part
    if "parts" in part:
        return Words.from_json(part)
    if part["verb"] not in get_args(Verb):
        raise ValueError(f"no words: {part['verb']!r} is no verb")
    return Remedy(part["verb"], **{str(name): str(arg) for name, arg in part["args"].items()})


FREE_SPACE = Words(
    Remedy("du"), " shows what takes space here, ", Remedy("clean"),
    " frees what can be made again and empties the trash",
    python="free some space: sandboxes, saves and images that nobody needs take it, and so does "
    "what is in the trash",
)  # fmt: skip
"""The hint for a full disk."""

WORD_MAX = 512
"""Characters of a word in a message; a longer word is shortened."""

MESSAGE_MAX = 4096
"""Characters of a message or a hint."""

_LONG_WORD = re.compile(rf"\S{{{WORD_MAX + 1},}}")


def shorten(text: str) -> str:
    """Shorten ``text``: cut out the middle of overlong words and of an overlong whole, noting the
    number of omitted characters."""
    if len(text) <= WORD_MAX:
        return text
    return _without_middle(_LONG_WORD.sub(lambda m: _without_middle(m[0], WORD_MAX), text))


def _without_middle(text: str, limit: int = MESSAGE_MAX) -> str:
    if len(text) <= limit:
        return text
    # The end is kept because errors often say there what is wrong.
    end = limit // 4
    return f"{text[: limit - end]}… ({len(text) - limit} characters left out) …{text[-end:]}"
