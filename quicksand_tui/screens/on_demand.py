"""Screens, their forms and their jobs, each imported when it is first opened (PEP 562): the first
paint needs none."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quicksand_tui.forms.checkpoints import (
        checkpoint_form,
        checkpoint_of,
        clone_form,
        clones_of,
        note_form,
        note_of,
    )
    from quicksand_tui.forms.last_used import NAME, last_of, recall_last
    from quicksand_tui.forms.mounts import mount_form, mount_of
    from quicksand_tui.forms.origins import IMAGE, SAVE
    from quicksand_tui.forms.packages import install_form, install_of
    from quicksand_tui.forms.ports import (
        copy_of,
        copy_port_form,
        forward_form,
        forward_of,
        unforward_form,
        unforward_of,
    )
    from quicksand_tui.forms.sandbox import new_form, with_usual
    from quicksand_tui.forms.saves import save_form, save_of
    from quicksand_tui.jobs.run_many import RunMany
    from quicksand_tui.jobs.saves import SavesOperations
    from quicksand_tui.screens.confirm import Answer, ConfirmScreen, Question
    from quicksand_tui.screens.diff import DiffScreen
    from quicksand_tui.screens.form import FormScreen
    from quicksand_tui.screens.help import HelpScreen
    from quicksand_tui.screens.jobs import JobsScreen
    from quicksand_tui.screens.jump import JumpScreen, Target
    from quicksand_tui.screens.look import LookScreen
    from quicksand_tui.screens.reports import CommandsScreen, FailureScreen, ReportScreen
    from quicksand_tui.screens.run_many import RunManyScreen
    from quicksand_tui.screens.ssh_questions import SshQuestions

__all__ = [
    "IMAGE",
    "NAME",
    "SAVE",
    "Answer",
    "CommandsScreen",
    "ConfirmScreen",
    "DiffScreen",
    "FailureScreen",
    "FormScreen",
    "HelpScreen",
    "JobsScreen",
    "JumpScreen",
    "LookScreen",
    "Question",
    "ReportScreen",
    "RunMany",
    "RunManyScreen",
    "SavesOperations",
    "SshQuestions",
    "Target",
    "checkpoint_form",
    "checkpoint_of",
    "clone_form",
    "clones_of",
    "copy_of",
    "copy_port_form",
    "forward_form",
    "forward_of",
    "install_form",
    "install_of",
    "last_of",
    "mount_form",
    "mount_of",
    "new_form",
    "note_form",
    "note_of",
    "recall_last",
    "save_form",
    "save_of",
    "unforward_form",
    "unforward_of",
    "with_usual",
]

_HOMES = {
    "forms.checkpoints": (
        "checkpoint_form",
        "checkpoint_of",
        "clone_form",
        "clones_of",
        "note_form",
        "note_of",
    ),
    "forms.last_used": (
        "NAME",
        "last_of",
        "recall_last",
    ),
    "forms.mounts": (
        "mount_form",
        "mount_of",
    ),
    "forms.origins": (
        "IMAGE",
        "SAVE",
    ),
    "forms.packages": (
        "install_form",
        "install_of",
    ),
    "forms.ports": (
        "copy_of",
        "copy_port_form",
        "forward_form",
        "forward_of",
        "unforward_form",
        "unforward_of",
    ),
    "forms.sandbox": ("new_form", "with_usual"),
    "forms.saves": (
        "save_form",
        "save_of",
    ),
    "jobs.run_many": ("RunMany",),
    "jobs.saves": ("SavesOperations",),
    "screens.confirm": (
        "Answer",
        "ConfirmScreen",
        "Question",
    ),
    "screens.diff": ("DiffScreen",),
    "screens.form": ("FormScreen",),
    "screens.help": ("HelpScreen",),
    "screens.jobs": ("JobsScreen",),
    "screens.jump": (
        "JumpScreen",
        "Target",
    ),
    "screens.look": ("LookScreen",),
    "screens.reports": (
        "CommandsScreen",
        "FailureScreen",
        "ReportScreen",
    ),
    "screens.run_many": ("RunManyScreen",),
    "screens.ssh_questions": ("SshQuestions",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"quicksand_tui.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
