"""Panes of terminals, split as in tmux, as widgets of Textual.

The public modules: `widgets` (a `Workspace` is a group of panes), `messages` (what they tell),
`guest_terminal` (what a pane needs of a terminal, and what it is told), `splits` (the layout of
panes), and `row_drawing` (rows of a terminal without a pane). Only `guest_terminal` and `splits` do
without Textual. Nothing is opened or read; programs in the terminals are taken to be hostile.
"""
