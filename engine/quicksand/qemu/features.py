"""What QEMU can do. It imports little: the overview of what is possible here asks it, too."""

from quicksand.base.hypervisor import Features

FEATURES = Features(devices_alone=True, whole_state=True, holds_packets=True)
