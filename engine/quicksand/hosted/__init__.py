"""Sandboxes of other machines: the parts of `Sandbox(host=…)`, and at the other end the process
that holds such sandboxes as long as their client is there (docs/internals/hosts.md).

Talk with the guest goes through its agent's channel. For all else the other machine is asked,
method by method, with values and errors whose types both ends know.
"""
