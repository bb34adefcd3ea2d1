"""The parts of which the running app is made: the base classes of its screens, its keys and the
widgets that get them, messages to the user, the memory between runs, and the terminal with its
abilities and its driver.

Imports `home`, `actions`, `views` and `panes`. Only `textual_private` and `textual_compositor` use
Textual's private API; `probe` and `outline` do their work before Textual is imported, so they
import next to nothing.
"""
