"""The running app: its class, dialogs, the palette, and the routing of keys.

Imports Textual, `screens`, `cockpit`, `widgets` and `panes`. Only `textual_private` uses Textual's
private API.
"""
