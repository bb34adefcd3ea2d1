"""Sandboxes of other machines: what `Sandbox(host=…)` is made of, and at the other end the process
that holds such sandboxes as long as their client is there (docs/internals/hosts.md).

What speaks to the guest goes through its agent's channel; all else is asked of the other machine,
method by method, with values and errors that both ends know by their types.
"""
