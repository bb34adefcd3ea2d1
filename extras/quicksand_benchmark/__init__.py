"""`quicksand-tui benchmark`: measures sandboxes on this machine, by their public API.

`command` has what is measured of checkpoints, reverts, trees, clones and saves, `measured` starts,
commands, what a sandbox takes of the host, and the figures. Programs in bench/ use the same
functions. The verb enters by an entry point (`verb`).
"""
