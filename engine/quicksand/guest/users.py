"""A user in a guest, as `Sandbox.create_user` returns it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from quicksand.base.arguments import checked_methods
from quicksand.base.errors import AgentProtocolError
from quicksand.guest.agent import values
from quicksand.guest.execution import ExecuteResult, StdinSource


class Executes(Protocol):
    """An object that runs commands as `Sandbox.execute` does."""

    async def execute(
        self,
        command: str | Sequence[str],
        timeout: float | None = 30.0,
        cwd: str | None = None,
        shell: str = "/bin/sh",
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        exclusive: bool = False,
        user: str | None = None,
        *,
        stdin: StdinSource | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = False,
    ) -> ExecuteResult: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A user of a guest, and the beginning of that user's sessions."""

    name: str
    uid: int
    gid: int
    home: str
    """The home directory; "/" if there is none."""
    shell: str
    """The program that runs the user's commands."""

    @classmethod
    def parse(cls, reply: Mapping[str, Any]) -> Self:
        """Read the agent's answer to "find_user". Raises AgentProtocolError."""
        try:
            return cls(
                name=values.text(reply["name"]),
                uid=values.whole(reply["uid"]),
                gid=values.whole(reply["gid"]),
                home=values.text(reply["home"]),
                shell=values.text(reply["shell"]),
            )
        except (KeyError, ValueError) as error:
            raise AgentProtocolError("the agent describes a user that makes no sense") from error


@checked_methods
class SandboxUser:
    """A user of a sandbox's guest, and commands that run as this user."""

    def __init__(self, sandbox: Executes, name: str, *, uid: int, gid: int, home: str) -> None:
        self._sandbox = sandbox
        self.name = name
        self.uid = uid
        self.gid = gid
        """The number of the user's own group, which has the user's name."""
        self.home = home
        """The path of the home directory."""

    def __repr__(self) -> str:
        return (
            f"SandboxUser(name={self.name!r}, uid={self.uid}, gid={self.gid}, home={self.home!r})"
        )

    @classmethod
    def parse(cls, sandbox: Executes, name: str, reply: Mapping[str, Any]) -> SandboxUser:
        """Read the agent's answer to "create_user". Raises AgentProtocolError."""
        try:
            uid = values.whole(reply["uid"])
            home = values.text(reply["home"])
        except (KeyError, ValueError) as error:
            raise AgentProtocolError(
                f"the agent did not say properly which user {name!r} it has made"
            ) from error
        # The agent gives a user's group the user's number (guest-agent/src/machine/accounts.rs).
        return cls(sandbox, name, uid=uid, gid=uid, home=home)

    async def execute(
        self,
        command: str | Sequence[str],
        timeout: float | None = 30.0,
        cwd: str | None = None,
        shell: str = "/bin/sh",
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        exclusive: bool = False,
        *,
        stdin: StdinSource | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = False,
    ) -> ExecuteResult:
        """Run a command as this user, by default in the user's home. Raises as
        `Sandbox.execute`."""
        return await self._sandbox.execute(
            command,
            timeout,
            cwd,
            shell,
            on_stdout,
            on_stderr,
            exclusive,
            self.name,
            stdin=stdin,
            env=env,
            check=check,
        )
