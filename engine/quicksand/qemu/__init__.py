"""Everything that is specific to QEMU."""
