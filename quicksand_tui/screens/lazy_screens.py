"""Screens, their forms and their jobs, each imported when it is first opened (PEP 562): the first
paint needs none."""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from quicksand_tui.forms.new_sandbox import new_form, with_usual
    from quicksand_tui.forms.presets import IMAGE, NAME, SAVE, last_of, recall_last
    from quicksand_tui.forms.verb_forms import (
        call_of,
        copy_of,
        copy_port_form,
        form_of,
        forward_form,
        forward_of,
        install_form,
        install_of,
        mount_form,
        mount_of,
        unforward_form,
        unforward_of,
    )
    from quicksand_tui.jobs.run_many import RunMany
    from quicksand_tui.screens.confirm import Answer, ConfirmScreen, Question
    from quicksand_tui.screens.diff_browser import DiffScreen
    from quicksand_tui.screens.form import FormScreen
    from quicksand_tui.screens.help import HelpScreen
    from quicksand_tui.screens.job_drawer import JobsScreen
    from quicksand_tui.screens.jump import JumpScreen, Target
    from quicksand_tui.screens.reports import (
        CommandsScreen,
        FailureScreen,
        LookScreen,
        ReportScreen,
    )
    from quicksand_tui.screens.run_many_table import RunManyScreen
    from quicksand_tui.screens.ssh_question import SshQuestions
else:
    __getattr__, __dir__ = on_demand()
