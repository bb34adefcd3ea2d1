"""The commands: each reads and changes sessions, shares and files.

Every function takes a `Request` and returns a `Reply`, or a `Pending` if the answer comes later. It
fails with `Refusal`, `StoreError` or `ProtocolError`, which the dispatcher turns into a status.
"""
