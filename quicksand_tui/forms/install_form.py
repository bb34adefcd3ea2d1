"""The form of an installation of an image from a package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quicksand_tui.forms.field_checks import PUBLISHED, find_package_problem, look_at_wheel
from quicksand_tui.forms.form_fields import Field, Form, Option, Values
from quicksand_tui.forms.mount_form import PATH_MAX, complete_file
from quicksand_tui.verbs import packages

if TYPE_CHECKING:
    from quicksand_tui.verbs.call import Call

ARCHS = (
    Option(value="", label="this host's"),
    Option(value="amd64", label="amd64"),
    Option(value="arm64", label="arm64"),
)


def install_form(package: str = "") -> Form:
    """Makes the form that asks for a package to install, with its known facts."""
    return Form(
        title="Install an image",
        does="installs it",
        button="Install",
        fields=(
            Field(
                id="name",
                label="Name",
                value=package,
                hint="alpine, alpine==0.10.1, or the path of a .whl",
                limit=PATH_MAX,
                complete=complete_package,
            ),
            Field(
                id="source",
                label="From",
                hint="the package index, then the project's releases",
                limit=PATH_MAX,
                complete=lambda typed: complete_file(typed, (".whl",)),
            ),
            Field(id="arch", label="Arch", options=lambda world, values: ARCHS),
        ),
        command=lambda values: install_of(values).command_for(),
        problems=lambda values, _: _only("name", find_package_problem(values["name"])),
        look=lambda values: _only("name", look_at_wheel(values["name"])),
        remarks=lambda values, _: {"arch": "" if values["arch"] else "what runs fast here"},
    )


def install_of(values: Values) -> Call[Any]:
    """Returns what the form asks for."""
    source, arch = values["source"], values["arch"]
    return packages.install(values["name"], sources=(source,) if source else (), arch=arch or None)


def complete_package(typed: str) -> tuple[str, ...]:
    """Returns the published images whose names begin with the typed text, and paths of wheels.
    Waits for the disk."""
    names = tuple(name for name in PUBLISHED if typed and name.startswith(typed))
    return (*names, *complete_file(typed, (".whl",)))


def _only(field: str, problem: str) -> dict[str, str]:
    return {field: problem} if problem else {}
