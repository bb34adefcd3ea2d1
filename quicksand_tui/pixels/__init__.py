"""Pictures of guests' screens for a terminal, and the terminal's mouse and keys for guests.

From a frame and a view of it to the bytes that a terminal draws: kitty graphics, sixels, or half
cells. No Textual and no input or output: tests decode the encoded bytes again.
"""
