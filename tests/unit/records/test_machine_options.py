"""Every option of a machine is said once, and is everywhere: on the command line, in the form, in
the command that the form shows, and in the manifest of a save."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import shlex
from dataclasses import dataclass
from typing import Any

import click
import pytest
import quicksand.records.config
from click.testing import CliRunner
from quicksand.base.arch import Architecture
from quicksand.records.config import NetworkMode, SandboxConfig
from quicksand.records.layout import PLACES
from quicksand.records.machine_options import NO, YES, MachineOption, option, options_of, places_of
from quicksand.records.params import MachineOptions, ResumeOptions, SandboxOptions
from quicksand.records.port_forwards import PortForward, Protocol
from quicksand.sandbox import OPTIONS, OWN, Sandbox
from quicksand.saves.resolving import confine, left_out_of
from quicksand.saves.save_manifest import SaveManifest

from quicksand_tui.cli import click_commands, lazy_commands, runner
from quicksand_tui.cli.guests import run
from quicksand_tui.forms import form_fields
from quicksand_tui.forms.form_fields import find_problems
from quicksand_tui.forms.new_sandbox import new_form
from quicksand_tui.forms.presets import NAME, last_of, recall_last
from quicksand_tui.home.state import Remembered
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.verbs.launching import machine_keywords, run_command
from tests.unit.app.fakes import FULL

TEXTS = {
    "memory": "1G",
    "cpus": "3",
    "network_mode": "full",
    "arch": "arm64",
    "accel": "tcg",
    "disk_size": "20G",
    "boot_timeout": "2.5",
    "vnc_port": "5901",
    "port_forwards": "8081:80, 22",
    "mounts": "'/srv/a b:/mnt/a:ro' /data:/mnt/data",
    "memory_dir": "/mnt/fast",
    "extra_qemu_args": "-device 'virtio-rng-pci,id=a b'",
}
"""A text that is not the default, for each option that is not just yes or no."""


@dataclass(frozen=True, slots=True)
class TrialConfig(SandboxConfig):
    """With one option more: what is said here is all that there is to be said of it."""

    rng: bool = option(
        False,
        "--rng",
        label="RNG",
        help="Give it a source of random numbers.",
        reaches=lambda wanted: "random numbers" if wanted else "",
    )


@pytest.fixture(params=[SandboxConfig, TrialConfig])
def config(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[SandboxConfig]:
    """The class of configs, everywhere."""
    kind: type[SandboxConfig] = request.param
    for module in (
        quicksand.records.config,
        quicksand.saves.save_manifest,
        lazy_commands,
        form_fields,
    ):
        monkeypatch.setattr(module, "SandboxConfig", kind)
    return kind


@pytest.fixture
def texts(config: type[SandboxConfig]) -> dict[str, str]:
    """Of each option a text that is not the default."""
    switches = [record for record in options_of(config) if record.is_switch]
    return TEXTS | {record.keyword: NO if record.default else YES for record in switches}


def given(config: type[SandboxConfig], texts: dict[str, str]) -> SandboxConfig:
    records = options_of(config)
    values = {r.keyword: r.parse_text(texts[r.keyword]) for r in records if r.keyword in texts}
    return config.parse({"image": "x", **values})


def command_of(kind: type[SandboxConfig]) -> click.Command:
    """A command with the options of a machine, which prints what arrives."""

    @click.command()
    @click_commands.machine_options()
    def command(machine: dict[str, Any]) -> None:
        print(json.dumps(kind.parse({"image": "x", **machine}).to_json()))

    return command


def test_every_field_is_an_option_with_a_text_here(
    config: type[SandboxConfig], texts: dict[str, str]
) -> None:
    names = [field.name for field in dataclasses.fields(config)]
    assert names == ["image", *(record.keyword for record in options_of(config))]
    assert texts.keys() == set(names[1:])
    for record in options_of(config):
        assert texts[record.keyword] != record.default_text
        assert len(record.label) <= 10 and record.help and record.flags


def test_every_option_is_on_the_command_line(
    config: type[SandboxConfig], texts: dict[str, str]
) -> None:
    command = command_of(config)
    shown = CliRunner().invoke(command, ["--help"]).stdout
    words: list[str] = []
    for record in options_of(config):
        assert all(flag in shown for flag in record.flags)
        words += record.words(texts[record.keyword])
    told = CliRunner().invoke(command, words, catch_exceptions=False).stdout
    assert json.loads(told) == given(config, texts).to_json()
    assert json.loads(CliRunner().invoke(command, []).stdout) == config("x").to_json()


def test_run_has_every_option() -> None:
    there = {parameter.name for parameter in run.run_command.params}
    assert {record.keyword for record in options_of(SandboxConfig)} <= there


def test_choices_are_completed_with_what_they_mean() -> None:
    """On a bare command: completions of arguments would ask the registry."""
    for parameter in command_of(SandboxConfig).params:
        record = next(r for r in options_of(SandboxConfig) if r.keyword == parameter.name)
        if record.choices and not record.is_switch:
            found = parameter.shell_complete(click.Context(click.Command("x")), "")
            assert {item.value: item.help for item in found} == {
                str(choice): note for choice, note in record.choices.items()
            }


def filled(texts: dict[str, str]) -> Any:
    """The form and the spec of one in which these are typed."""
    form, spec_of = new_form(FULL)
    values = {field.id: field.value for field in form.fields}
    values |= {"begin": "image:debian", "name": "one", "more": YES, **texts}
    return form, values, spec_of(values)


def test_every_option_is_in_the_form(config: type[SandboxConfig], texts: dict[str, str]) -> None:
    form, values, spec = filled(texts)
    fields = {field.id: field for field in form.fields}
    for record in options_of(config):
        field = fields[record.keyword]
        assert field.label == record.label
        shown = field.is_shown is None or field.is_shown({**values, "more": NO})
        assert shown == record.is_usual
        if field.options is not None:
            offered = [
                choice.value or record.default_text for choice in field.options(FULL, values)
            ]
            assert set(record.choices) <= set(offered) and record.default_text == offered[0]
            saved = field.options(FULL, {**values, "begin": "save:/x"})
            assert [choice.value for choice in saved] == ["", *record.choices]
    assert spec.machine == texts
    assert find_problems(spec, FULL) == {}
    made = config.parse({"image": "x", **machine_keywords(spec)})
    assert made == given(config, texts)


def test_what_is_not_shown_does_not_count(
    config: type[SandboxConfig], texts: dict[str, str]
) -> None:
    _, values, _ = filled(texts)
    _, spec_of = new_form(FULL)
    hidden = spec_of({**values, "more": NO}).machine.keys()
    assert hidden == {record.keyword for record in options_of(config) if record.is_usual}


def test_every_option_is_in_the_command_that_is_shown(
    config: type[SandboxConfig], texts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, spec = filled(texts)
    words = shlex.split(run_command(spec))
    for record in options_of(config):
        assert record.flags[-1] in words
    if config is SandboxConfig:
        plans: list[Any] = []

        async def take(plan: Any, _: object) -> int:
            plans.append(plan)
            return 0

        monkeypatch.setattr(run, "_run", take)
        monkeypatch.setattr(runner, "run_in_sandbox", lambda main: asyncio.run(main(None)))
        run.run_command.main(words[2:], standalone_mode=False)
        (plan,) = plans
        options = {key: value for key, value in plan.start.items() if key in {*OPTIONS}}
        assert config.parse({**options, "image": "x"}) == given(config, texts)


def test_what_was_typed_last_is_there_again_but_for_what_reaches_beyond_the_guest(
    config: type[SandboxConfig], texts: dict[str, str]
) -> None:
    used = last_of(NewSpec(image="debian", name="one", machine=texts))
    wanted, usual = given(config, texts), config(image="x")
    reaching = {
        record.keyword
        for record in options_of(config)
        if record.reaches(getattr(wanted, record.keyword))
    }
    assert reaching
    kept = {keyword: text for keyword, text in texts.items() if keyword not in reaching}
    assert used.machine == kept and kept
    form, spec_of = new_form(FULL, last=used)
    values = {field.id: field.value for field in form.fields}
    assert (values["preset"], values["more"]) == ("last", YES)
    machine = spec_of(values).machine
    assert {**machine, **kept} == machine
    begun = given(config, dict(machine))
    for keyword in reaching:
        assert getattr(begun, keyword) == getattr(usual, keyword)


def test_what_an_older_version_remembered_reaches_nothing(
    config: type[SandboxConfig], texts: dict[str, str]
) -> None:
    remembered = Remembered()
    machine = {**texts, "network_mode": "full", "port_forwards": "1:2, nonsense"}
    remembered.put(NAME, {"begin": "image:debian", "image": "debian", "machine": machine})
    last = recall_last(remembered)
    assert last is not None
    begun = given(config, dict(last.machine))
    assert not any(r.reaches(getattr(begun, r.keyword)) for r in options_of(config))


def test_every_option_is_in_the_manifest(
    config: type[SandboxConfig], texts: dict[str, str]
) -> None:
    wanted = given(config, texts)
    manifest = SaveManifest(config=wanted, arch="x86_64")
    text = json.dumps(manifest.to_json())
    found = SaveManifest.from_json(json.loads(text))
    assert (found.config, dict(found.other_config)) == (wanted, {})


def test_what_reaches_beyond_the_guest_is_not_taken_from_anybody(
    config: type[SandboxConfig], texts: dict[str, str]
) -> None:
    wanted = given(config, texts)
    found = confine(wanted)
    reaching = {"network_mode", "port_forwards", "mounts", "agent_http", "vnc_port"}
    reaching |= {"extra_qemu_args", "memory_dir", "rng"}
    for record in options_of(config):
        value = getattr(found, record.keyword)
        if record.keyword in reaching:
            assert value == record.default
        else:
            assert value == getattr(wanted, record.keyword)
    assert len(left_out_of(wanted)) == len(reaching & texts.keys())
    assert left_out_of(found) == ()
    narrow = config("x", network_mode=NetworkMode.NONE)
    assert confine(narrow) == narrow


def test_the_places_that_are_options_are_those_that_are_followed() -> None:
    assert tuple(record.place for record in places_of(SandboxConfig)) == PLACES


def test_defaults_are_as_they_always_were() -> None:
    assert (
        SandboxConfig("debian").to_json().items()
        >= {
            "image": "debian",
            "memory": "512M",
            "cpus": 1,
            "network_mode": "mounts_only",
            "arch": None,
            "accel": "auto",
            "disk_size": None,
            "boot_timeout": 60.0,
            "port_forwards": [],
            "agent_http": False,
            "extra_qemu_args": [],
        }.items()
    )
    taken = SandboxConfig("debian", arch=Architecture.ARM64, port_forwards=(PortForward(1, 2),))
    assert taken.to_json()["port_forwards"] == [{"host": 1, "guest": 2}]
    dns = SandboxConfig("debian", port_forwards=(PortForward(1, 2, Protocol.UDP),))
    assert dns.to_json()["port_forwards"] == [{"host": 1, "guest": 2, "protocol": "udp"}]


def test_a_save_says_yes_or_no_to_a_switch() -> None:
    record: MachineOption = next(r for r in options_of(SandboxConfig) if r.keyword == "agent_http")
    assert (record.words(YES), record.words(NO)) == (["--agent-http"], ["--no-agent-http"])


def test_the_typed_keywords_are_the_options() -> None:
    """Editors complete what stands in `MachineOptions`; `SandboxConfig` is where options are."""
    assert MachineOptions.__annotations__.keys() == set(OPTIONS) - {"image"}
    assert SandboxOptions.__annotations__.keys() == {*OPTIONS, *OWN} - {"image"}
    own = set(inspect.signature(Sandbox.__init__).parameters) - {"self", "image", "options"}
    assert own == set(OWN)
    resume = ResumeOptions.__annotations__.keys()
    assert resume == SandboxOptions.__annotations__.keys() - {
        "base_dir",
        "host",
        "fleet",
        "restart",
    }
