"""What each command does with sessions, shares and files.

Every function takes a `Request` and gives a `Reply`, or a `Pending` if the answer comes later. It
fails with `Refusal`, `StoreError` or `ProtocolError`, which the connection makes into a status.
"""
