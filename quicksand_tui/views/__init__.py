"""Pure functions that turn the model into rows and text.

Imports only `model`, and no Textual, so that tests compare rows and texts as values.
"""
