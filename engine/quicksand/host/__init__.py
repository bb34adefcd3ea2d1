"""What concerns the host and is not QEMU's: architecture, places, memory."""
