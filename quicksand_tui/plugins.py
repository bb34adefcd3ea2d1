"""Names for packages with commands of their own, such as `api`: what they say them with, and what
their functions need. They may change with any version, so such a package names its version.

A verb enters by an entry point of the group ``quicksand_tui.verbs``: its name is that of the verb,
its value the module that holds the literal (`command`, with its ``parts``). The literal names the
module of its functions (`command_of`) in full, and the verb that it follows in the help. Both are
imported when the verb is asked for, the literal also for the help; it must not need what an extra
brings.
"""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from quicksand_tui.cli.click_commands import command_of, parse_address
    from quicksand_tui.cli.completing import beginning
    from quicksand_tui.cli.output import (
        Exit,
        complain,
        print_json,
        print_table,
        say,
        show_age,
        show_size,
    )
    from quicksand_tui.cli.runner import Signals, run_async
    from quicksand_tui.model.remedy_words import hint_of, text_of
    from quicksand_tui.model.text import sanitise
    from quicksand_tui.verbs.parameters import DEFAULT_IMAGE, JSON
    from quicksand_tui.verbs.verb import Kind, argument, command, flag, option, part
else:
    __getattr__, __dir__ = on_demand()
