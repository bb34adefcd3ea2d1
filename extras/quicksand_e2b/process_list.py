"""The list on disk of the processes that run in a sandbox, by which another server finds them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from quicksand import QuicksandError
from quicksand.extending import Fields, in_thread_to_the_end, read_json, write_json

from quicksand_e2b.process import Facts
from quicksand_e2b.tasks import Tasks

SCHEMA = 1
PROCESSES_MAX = 500
"""The most processes that run at a time."""

WORDS_MAX = 16 * 1024
"""The most characters kept of the words and variables of one process. A process with more is found
again without them: all are written whenever one begins or ends."""


class ProcessList:
    """A file, written in a thread, one writing at a time: later changes go into the next one."""

    def __init__(self, path: Path, tasks: Tasks, tell: Callable[[str], None]) -> None:
        """``tell`` is told if the file cannot be written: another server would miss processes."""
        self._path = path
        self._tasks = tasks
        self._tell = tell
        self._pending: list[Facts] | None = None
        self._put = 0
        self._written = 0
        self._writing: asyncio.Task[None] | None = None
        self._is_closed = False

    def put(self, current: list[Facts]) -> None:
        """Has these running processes written soon."""
        if self._is_closed:
            return
        self._pending = current
        self._put += 1
        if self._writing is None or self._writing.done():
            self._writing = self._tasks.start(self._write(), f"api-list-{self._path.stem}")

    async def written(self) -> None:
        """Waits until all earlier lists are on disk, or could not be written."""
        wanted = self._put
        while self._written < wanted and self._writing is not None and not self._writing.done():
            await asyncio.wait((self._writing,))

    async def close(self) -> None:
        """Ends the writing. From now on the file is the caller's."""
        self._is_closed = True
        self._pending = None
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    async def _write(self) -> None:
        while (current := self._pending) is not None:
            self._pending, number = None, self._put
            value = {"schema_version": SCHEMA, "processes": [_told(facts) for facts in current]}
            try:
                await in_thread_to_the_end(partial(write_json, self._path, value, durable=False))
            except QuicksandError as error:  # the processes go on
                self._tell(f"the list of processes is not written: {error}")
            self._written = number

    def read(self) -> dict[int, Facts]:
        """Reads the facts that were written last, by number; none if they cannot be read."""
        try:
            found = Fields(read_json(self._path), "bad processes")
            if found.whole("schema_version") != SCHEMA:
                return {}
            facts = [_parse(item) for item in found.items("processes")[:PROCESSES_MAX]]
        except (OSError, ValueError):
            return {}
        return {fact.pid: fact for fact in facts}


def _told(facts: Facts) -> dict[str, object]:
    config = facts.config
    words = [*config.get("args", ()), *(w for pair in config.get("envs", {}).items() for w in pair)]
    if sum(map(len, words)) > WORDS_MAX:
        config = {**config, "args": [], "envs": {}}
    return {
        "pid": facts.pid, "tag": facts.tag, "config": config, "session": facts.session,
        "command": facts.command, "has_stdin": facts.has_stdin,
        "deadline": facts.deadline, "began": facts.began,
    }  # fmt: skip


def _parse(value: object) -> Facts:
    """Reads the facts of a process. Raises ValueError."""
    found = Fields(value, "bad process")
    config = found.any("config")
    if not isinstance(config, dict):
        raise ValueError("bad process: config is no object")
    return Facts(
        pid=found.whole("pid"),
        tag=found.text("tag"),
        config=config,
        session=found.text("session"),
        command=found.text("command", default=""),
        has_stdin=found.flag("has_stdin", default=False),
        deadline=found.maybe("deadline", found.real),
        began=found.maybe("began", found.whole),
    )
