"""Jobs of the app, commands in several sandboxes, and their failures."""

from __future__ import annotations

from enum import StrEnum

from quicksand.things.frozen import frozen
from quicksand.things.status import Status

from quicksand_tui.model.amounts import age_text, left_text, size_text


class JobVerb(StrEnum):
    """The verb of a job; the value names it within a sentence."""

    START = "start"
    STOP = "stop"
    KILL = "kill"
    PAUSE = "pause"
    RESUME = "resume"
    DELETE = "delete"
    CHECKPOINT = "checkpoint"
    REVERT = "revert"
    UNDO = "undo"
    REMOVE = "removal of a checkpoint"
    CLONE = "clone"
    PIN = "pin"
    NOTE = "note"
    MOUNT = "mount"
    UNMOUNT = "unmount"
    SAVE = "save"
    EXPORT = "export"
    IMPORT = "import"
    INSTALL = "installation"
    VERIFY = "verification"
    DISCARD = "removal"
    """Moves saves to the trash, or removes them for good."""
    RESTORE = "way back from the trash"
    RUN = "command"
    CHANGE = "change"
    """Any other change of a sandbox, done within a moment."""


SAVE_VERBS = frozenset(
    {
        JobVerb.EXPORT,
        JobVerb.IMPORT,
        JobVerb.INSTALL,
        JobVerb.VERIFY,
        JobVerb.DISCARD,
        JobVerb.RESTORE,
    }
)
"""Verbs of jobs that do not belong to a sandbox."""

CANCELLABLE = SAVE_VERBS | {JobVerb.START, JobVerb.SAVE, JobVerb.RUN}
"""Verbs that leave nothing half done when cancelled; others end soon, or when the guest lets
them."""

JOB_STATES = {
    JobVerb.START: Status.STARTING,
    JobVerb.STOP: Status.STOPPING,
    JobVerb.KILL: Status.STOPPING,
    JobVerb.DELETE: Status.DELETING,
}
"""The state shown for a sandbox during such a job; other jobs do not change it."""


@frozen
class Job:
    """A running operation of this app."""

    sandbox_id: str
    """The id of the sandbox, or an id of its own for a job about saves."""
    name: str
    verb: JobVerb
    image: str = ""
    stage: str = ""
    """The current stage, in words."""
    step: int = 0
    steps: int = 0
    """Step ``step`` of ``steps`` is running; both are 0 for a job of one step."""
    started: float = 0.0
    """Unix time."""
    command: str = ""
    """The shell command that does the same."""
    cancelling: bool = False
    about: frozenset[str] = frozenset()
    """Keys of the saves it works on, or ids of the sandboxes of a command in several."""

    done: int = 0
    total: int = 0
    """``done`` of ``total`` bytes; both are 0 if bytes are not counted."""
    rate: float = 0.0
    """Bytes per second; 0 if not known yet."""
    share: float | None = None
    """The share of the whole that is done, from 0 to 1, if all stages have one count."""
    ends: float = 0.0
    """The Unix time at which it ends, as far as its share tells; 0 if unknown."""
    kind: str = ""
    """Equal for jobs that do the same to sandboxes of one image; "" for a job without equals."""
    usual_s: float = 0.0
    """Seconds that jobs of its kind took; 0 if unknown."""

    @property
    def sandboxes(self) -> frozenset[str]:
        """The ids of its sandboxes; a job about saves has an id that no sandbox has."""
        return self.about if self.verb is JobVerb.RUN else frozenset({self.sandbox_id})

    @property
    def progress(self) -> str:
        """The progress, such as "5/5 boot the guest" or "reading 43% · 120M/s · 12s left"."""
        if self.total:
            text = f"{self.stage} {self.done * 100 // self.total}%".strip()
            if not self.rate:
                return text
            left = age_text((self.total - self.done) / self.rate)
            return f"{text} · {size_text(int(self.rate))}/s · {left} left"
        if self.share is not None:
            return f"{self.share:.0%} {self.stage}".strip()
        if not self.steps:
            return self.stage
        return f"{self.step}/{self.steps} {self.stage}".strip()

    def progress_at(self, now: float) -> str:
        """Returns the progress with the time left at the Unix time ``now``, such as "about 20s left
        · 5/5 boot the guest": by the rate of its bytes, or else by the time of earlier jobs like
        it, or by the share of the whole that is done. A job that takes longer than those shows no
        time."""
        ends = self.started + self.usual_s if self.usual_s else self.ends
        left = 0.0 if self.total else ends - now
        told = left_text(left) if left >= 1 else ""
        return " · ".join(filter(None, (told, self.progress)))


@frozen
class EndedJob:
    """A job of this app that has ended."""

    number: int
    job: Job
    """The job as it was at its end."""
    outcome: str
    """ "done", "failed" or "cancelled"."""
    ended: float
    """Unix time."""
    seconds: float
    told: str = ""
    """The message it ended with."""
    failure: Failure | None = None


@frozen
class Failure:
    """A failure, in words for the user."""

    title: str
    message: str
    hint: str = ""
    log: tuple[str, ...] = ()
    """The last lines that QEMU or the guest wrote."""


@frozen(kw_only=False)
class CommandRecord:
    """A line of the command log: the command that does the same as an action."""

    command: str
    outcome: str = "running"
    """ "running", "done", "failed" or "cancelled"."""
    seconds: float | None = None
    about: frozenset[str] = frozenset()
    """The ids of the sandboxes that it is about; none if it is about saves or images."""


class UnsuccessfulError(Exception):
    """Raised by an operation that ran to its end without reaching its goal. The app shows the
    message as an outcome, not as a failure dialog."""


class OperationError(Exception):
    """Raised by `door.service`; carries the failure to show."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@frozen
class CommandOutput:
    """The end of a command in a guest. All text is sanitised."""

    exit_code: int
    """The exit code that a shell would show: 128 + n after signal n."""
    seconds: float
    """Run time by the host's clock."""
    lines: tuple[str, ...] = ()
    """Standard output and error, in the order in which they were written."""
    is_cut: bool = False
    """The command wrote more than ``lines`` holds."""
    timed_out: bool = False


class RunState(StrEnum):
    READY = "ready"
    WAITING = "waiting"
    """It waits for a free slot."""
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    """It has no exit code: it could not be started, or the guest did not answer."""
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    """Its sandbox is not running."""


@frozen
class Run:
    """The command in one sandbox."""

    sandbox_id: str
    name: str
    state: RunState = RunState.READY
    output: CommandOutput | None = None
    note: str = ""
    """The reason why it failed or was skipped."""
    begun: float = 0.0
    """Monotonic time."""
