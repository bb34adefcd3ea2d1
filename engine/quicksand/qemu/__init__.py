"""Everything specific to QEMU: finding it, its command line, its processes, QMP."""
