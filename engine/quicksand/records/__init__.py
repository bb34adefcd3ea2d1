"""The files on disk, and reading them: configurations, records of sandboxes, nodes of checkpoints,
mounts, the registry that lists them, and where each lies (`layout`).

It is the truth that all clients share: whoever wants to know what a sandbox is begins here. No QEMU
and no guest is asked.
"""
