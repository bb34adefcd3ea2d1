"""The abilities of QEMU. It imports little, because the overview of this host asks it, too."""

from quicksand.base.hypervisor import Features

FEATURES = Features(devices_alone=True, whole_state=True, holds_packets=True)
