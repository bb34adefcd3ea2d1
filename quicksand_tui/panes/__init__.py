"""Panes that draw the terminals of guests, split as in tmux.

Imports `model` and Textual. A pane reaches its guest through the protocol in `content`,
so tests bring their own guests.
"""
