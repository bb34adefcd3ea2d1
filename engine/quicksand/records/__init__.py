"""The files on disk, and reading them: configurations, records of sandboxes, nodes of checkpoints,
mounts, the registry that lists them, and where each lies (`layout`).

They are the truth that all clients share: questions about a sandbox begin here. Neither QEMU nor
the guest is asked.
"""
