"""From exec to the app: puts the questions to the terminal, and draws the outline meanwhile.

Imports next to nothing before Textual, so that the user sees something at once; `kit` has the probe
and the outline.
"""
