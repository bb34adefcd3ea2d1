"""What the running app is made with: the base classes of its screens, its keys and who gets them,
messages to the user, what is remembered, and the terminal with its abilities and its driver.

Imports `home`, `actions`, `views` and `panes`. Only `textual_private` and `textual_compositor` use
Textual's private API; `probe` and `outline` do their work before Textual is imported, so they
import next to nothing.
"""
