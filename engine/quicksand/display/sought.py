"""The QEMU that shows the screen of a sandbox, for its own program and for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from quicksand.base.errors import NoDisplayError, StateError
from quicksand.base.paths import Paths
from quicksand.base.remedies import Remedy, Words
from quicksand.records.layout import MachineDir, runtime_dir

if TYPE_CHECKING:
    from quicksand.records.config import SandboxConfig
    from quicksand.records.sandboxes import Entry


def no_display(name: str) -> NoDisplayError:
    """The error for a sandbox that has none, whether it runs or not."""
    return NoDisplayError(
        f"the sandbox {name!r} has no display",
        hint=Words(
            "make one that has: enable_display=True, or ",
            Remedy("run_with_display"),
            python="make one that has: enable_display=True",
        ),
    )


def not_running(name: str) -> StateError:
    """The error for a sandbox that shows nothing now."""
    return StateError(
        f"the sandbox {name!r} is not running",
        hint=Words(
            "`start`, or ",
            Remedy("start", name=name),
            ", starts it",
            python="`start` starts it",
        ),
    )


def machine_with_screen(
    places: Paths, name: str, config: SandboxConfig, find: Callable[[], Entry]
) -> MachineDir:
    """The directory of the QEMU that shows the screen of a sandbox now; ``find`` looks for that
    sandbox. Raises NoDisplayError, StateError if it does not run, and what ``find`` raises."""
    if not config.enable_display:
        raise no_display(name)
    entry = find()
    if entry.run is None:
        raise not_running(name)
    return runtime_dir(places, entry.id).current()
