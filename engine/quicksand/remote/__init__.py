"""Other machines: the connection to the quicksand-tui there, over the user's own ssh, and the other
end of it, which carries commands out (docs/internals/hosts.md).

It stands on the frames of the guest's agent, and knows nothing of machines, disks or the app.
"""
