"""Saves on their way to another machine, file by file: `source` has the files that leave, `depot`
takes those that arrive, and asks only for missing ones. The protocol between them is elsewhere."""
