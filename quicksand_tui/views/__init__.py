"""Pure functions that turn the model into rows and text.

Imports `model` only, and no Textual, so that tests compare what is shown as values.
"""
