"""Local nodes of a fleet: our program is run directly, with directories of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from quicksand.errors import RemoteUnreachableError
from quicksand.extending import (
    BUDGET,
    CPUS,
    NODE_HOME,
    NODE_SCHEME,
    SHARED_IMAGES,
    Paths,
    make_marked,
    make_private_dir,
    paths,
)

from quicksand_fleet.record import NODE_NAME, NodeRecord, read_fleet, require_node

PROGRAM = ("-P", "-m", "quicksand_tui")
"""-P keeps the working directory off the import path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDestination:
    """A local node, as `Connection` needs to know it."""

    name: str
    data: Path
    runtime: Path
    memory_bytes: int
    cpus: int

    @classmethod
    def of(cls, node: NodeRecord, ours: Paths) -> NodeDestination:
        """Return the way to a node of the fleet of these directories."""
        return cls(
            name=node.name,
            data=node.data(ours),
            runtime=node.runtime(ours),
            memory_bytes=node.memory_bytes,
            cpus=node.cpus,
        )

    def __str__(self) -> str:
        return f"{NODE_SCHEME}{self.name}"

    @property
    def short(self) -> str:
        """The name of the node in messages."""
        return self.name

    @property
    def home(self) -> Path:
        """Return the working directory of its program, in place of a home directory on another
        machine: saves without a workspace go there, instead of the client's directory."""
        return self.data / NODE_HOME

    @property
    def trial(self) -> str:
        """Return a command that shows whether the node can be reached."""
        return "quicksand-tui fleet status"

    def environment(self) -> dict[str, str]:
        """Return the variables that give the node directories of its own."""
        return {
            "QUICKSAND_DATA_DIR": str(self.data),
            "QUICKSAND_RUNTIME_DIR": str(self.runtime),
            BUDGET: str(self.memory_bytes),
            CPUS: str(self.cpus),
            SHARED_IMAGES: "1",
        }

    async def start(
        self,
        *words: str,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        start_new_session: bool = True,
    ) -> asyncio.subprocess.Process:
        """Start its program with ``words``; the streams are those of `subprocess`. Raises OSError,
        PathError if something else is in its place, and RemoteUnreachableError if the node has been
        ended."""
        require_node(self.name, self.data, self.runtime)
        try:
            self.home.mkdir(mode=0o700, exist_ok=True)
        except FileNotFoundError:
            raise RemoteUnreachableError(f"{self.name} has been ended") from None
        if not self.runtime.exists():  # after a reboot
            make_private_dir(self.runtime.parent)
            make_marked(self.runtime)
        env = {key: value for key, value in os.environ.items() if key != "QUICKSAND_HOST"}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, *PROGRAM, *words),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=env | self.environment(),
            cwd=self.home,
            start_new_session=start_new_session,
        )


def find_node(name: str) -> NodeDestination | None:
    """Return the node of that name, None if the fleet that is up has none. Raises FleetError."""
    ours = paths()
    record = read_fleet(ours) if NODE_NAME.fullmatch(name) else None
    for node in () if record is None else record.nodes:
        if node.name == name:
            return NodeDestination.of(node, ours)
    return None
