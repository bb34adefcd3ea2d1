"""The host apart from QEMU: architecture, directories, files, memory, processes."""
