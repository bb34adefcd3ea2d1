"""QEMU's features as a hypervisor. The module imports little, since `doctor` reads it, too."""

from __future__ import annotations

from quicksand.base.hypervisor import Features

FEATURES = Features(devices_alone=True, whole_state=True, loads_again=True)
