"""What the host is, as scripts ask for it."""

from __future__ import annotations

import sys

import pytest
from quicksand import OS, PlatformConfig, get_platform_config
from quicksand.base.errors import ConfigError


@pytest.mark.parametrize(
    ("platform", "os"), [("linux", OS.LINUX), ("darwin", OS.MACOS), ("win32", OS.WINDOWS)]
)
def test_the_kind_of_the_system_has_the_specifications_name(
    monkeypatch: pytest.MonkeyPatch, platform: str, os: OS
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    config = get_platform_config()
    assert isinstance(config, PlatformConfig)
    assert config.os.os_type is os
    assert isinstance(config.os.os_type, OS)


def test_an_unknown_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "plan9")
    with pytest.raises(ConfigError, match="plan9"):
        get_platform_config()
