"""This host as a place for guests."""

from __future__ import annotations

import quicksand
from quicksand import (
    PlatformConfig,
    RuntimeInfo,
    detect_accelerator,
    get_accelerator,
    get_machine_type,
    get_platform_config,
    is_runtime_available,
)

__all__ = [
    "PlatformConfig",
    "RuntimeInfo",
    "detect_accelerator",
    "get_accelerator",
    "get_machine_type",
    "get_platform_config",
    "get_platform_config_for_arch",
    "get_runtime",
    "is_runtime_available",
]


def get_platform_config_for_arch(arch: str) -> PlatformConfig:
    """`get_platform_config` for guests of ``arch``. Raises ConfigError."""
    return get_platform_config(arch)


def get_runtime(config: PlatformConfig | None = None) -> RuntimeInfo:
    """The QEMU for guests of a platform's architecture, by default this host's. Raises QemuNotFound
    and QemuTooOld (RuntimeErrors), ConfigError."""
    return quicksand.get_runtime(config)
