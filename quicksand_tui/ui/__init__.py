"""The running app: its class, which makes all its parts, the stack of its screens, the palette, and
the `:` line.

Imports Textual and all rooms below; no other room but `opening` and `cli` imports it.
"""
