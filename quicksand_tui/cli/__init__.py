"""The commands: a room for each family of verbs, and what these share.

`main` runs a line, `click_commands` reads it, `runner` opens sandboxes and handles signals,
`output` prints. Imports the engine and `model`, never Textual, so that a command starts at once.
"""
