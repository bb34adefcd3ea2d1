"""From exec to the app: the questions to the terminal, and the outline drawn meanwhile.

Imports next to nothing before Textual, so that the user sees something at once.
"""
