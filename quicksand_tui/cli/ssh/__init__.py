"""An SSH server that leads into one sandbox. It speaks on stdin and stdout to the client that has
started it (ProxyCommand in ssh_config(5)), so nothing listens, and the pipe belongs to its user.

Commands, terminals and SFTP run in the guest, by its agent; every address that a client asks for is
dialled in the guest, never here. All channels of a connection share one connection to the agent,
and end with it.
"""
