"""What a command may load: start-up time is a feature."""

from __future__ import annotations

import subprocess
import sys

from quicksand.base.paths import Paths

from quicksand_tui.verbs.index import all_verbs
from tests.each import each
from tests.unit.app.test_reader import make

ALL_OF_THEM = """
import sys
from importlib import import_module
from pathlib import Path
import quicksand_tui.cli
root = Path(quicksand_tui.cli.__file__).parent
for path in root.rglob("*.py"):
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    import_module(f"quicksand_tui.cli.{name}")
"""


def modules_after(code: str) -> set[str]:
    """Names of the modules that are loaded once ``code`` has run."""
    program = f"{code}\nimport sys\nprint('MODULES', *sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    line = result.stdout.decode().splitlines()[-1]
    assert line.startswith("MODULES ")
    return set(line.split()[1:])


def test_no_module_of_the_command_line_loads_textual() -> None:
    loaded = {name.partition(".")[0] for name in modules_after(ALL_OF_THEM)}
    assert not loaded & {"textual", "rich"}


ALL_HELP = """
import sys
from quicksand_tui.cli.main import run
for name in {names!r}:
    run([name, "--help"])
    assert not {{"textual", "rich"}} & {{*sys.modules}}, name
"""


def test_the_help_of_no_command_loads_textual() -> None:
    one_of_each = {verb.module: verb.name for verb in all_verbs()}
    modules_after(ALL_HELP.format(names=sorted(one_of_each.values())))


@each("argv", [["ps"], ["ps", "-a", "--json"], ["--help"], ["logs", "x"]])
def test_quick_commands_do_not_load_asyncio(argv: list[str]) -> None:
    loaded = modules_after(f"from quicksand_tui.cli.main import run; run({argv!r})")
    assert not loaded & {"asyncio", "textual", "rich", "qemu.qmp", "quicksand.sandbox"}


def test_a_command_in_a_sandbox_loads_only_what_it_needs() -> None:
    """Scripts call it in loops."""
    loaded = modules_after("from quicksand_tui.cli.main import run; run(['exec', 'x', '--', 'y'])")
    heavy = (
        "warm.starting",
        "qemu.stopping",
        "qemu.process",
        "snapshots.history",
        "disks.images.resolve",
        "saves.store",
    )
    assert "quicksand.sandbox" in loaded
    assert not loaded & {f"quicksand.{name}" for name in heavy}
    assert not loaded & {"click", "quicksand_vt", "qemu.qmp", "platformdirs", "tempfile"}
    assert "asyncio" in loaded
    assert "ssl" not in loaded


def test_a_program_that_has_loaded_ssl_keeps_it() -> None:
    run_it = "from quicksand_tui.cli.main import run; run(['exec', 'x', '--', 'y'])"
    modules_after(f"import ssl, sys; {run_it}; assert sys.modules['ssl'] is ssl")
    modules_after(f"{run_it}; import ssl; ssl.SSLContext")


def test_the_app_is_there_before_the_engine_and_the_terminal_emulator() -> None:
    loaded = modules_after("import quicksand_tui.ui.app")
    heavy = ("quicksand.", "quicksand_vt.", "quicksand_panes.pane", "tomllib")
    light = {f"quicksand.{name}" for name in ("base", "base.entering", "base.on_demand", "things")}
    assert not [
        name
        for name in loaded
        if name.startswith(heavy) and name not in light and not name.startswith("quicksand.things.")
    ]


def test_the_first_paint_waits_for_nothing_that_it_does_not_show() -> None:
    """The lists are empty then, and there are neither connections nor downloads."""
    loaded = modules_after("import quicksand_tui.ui.app, quicksand_tui.home.config_file")
    assert "quicksand_tui.model.world" in loaded
    assert not loaded & {"quicksand_tui.screens.form", "quicksand_tui.forms.new_sandbox"}
    assert not loaded & {"quicksand_panes.pane", "quicksand_panes.workspace"}
    assert not loaded & {"click", "tomllib"}


def test_the_first_frame_waits_for_no_cryptography() -> None:
    """asyncio would load ssl, of which nothing asks before a download."""
    loaded = modules_after(
        "from quicksand_tui.opening.asyncio_alone import import_asyncio; import_asyncio(); "
        "import quicksand_tui.door.service, quicksand_tui.home.config_file, quicksand_tui.ui.app"
    )
    assert "textual.app" in loaded
    assert not loaded & {"ssl", "_ssl"}


def test_opening_the_app_needs_no_reader_of_command_lines() -> None:
    loaded = modules_after("import quicksand_tui.__main__, quicksand_tui.cli.main")
    assert not [name for name in loaded if name.split(".")[0] in ("click", "quicksand", "textual")]


def test_the_outline_waits_for_nothing_of_the_list() -> None:
    loaded = modules_after("import quicksand_tui.cli.main, quicksand_tui.opening.opening")
    assert "quicksand_tui.kit.outline" in loaded
    assert not loaded & {"asyncio", "quicksand_tui.views.tables", "quicksand.things.status"}


FIRST_LOOK = """
from quicksand_tui.door.service import EngineService
from quicksand_tui.kit.first_list import first_list
from quicksand_tui.kit.outline import Looks
from quicksand_tui.views.main_layout import Shape, USUAL_NEEDS
service = EngineService()
world = service.read_sandboxes()
assert first_list(80, 24, Looks(), Shape(), USUAL_NEEDS, world)
"""


def test_the_list_is_drawn_without_textual_and_what_images_need(places: Paths) -> None:
    make(places)
    loaded = modules_after(FIRST_LOOK)
    late = (
        *("textual", "rich.console", "quicksand_images", "quicksand.warm", "quicksand.disks"),
        "quicksand_disks",
    )
    assert not [name for name in loaded if name.startswith(late)]
    assert not loaded & {"quicksand.qemu.command", "quicksand.sandbox", "platformdirs", "click"}


def test_no_look_loads_what_builds_images(places: Paths) -> None:
    make(places)
    loaded = modules_after(f"{FIRST_LOOK}\nassert service.read().images")
    assert "quicksand.disks.images.resolve" in loaded
    assert not loaded & {"quicksand_images.build", "quicksand_images.in_vm", "quicksand.sandbox"}
