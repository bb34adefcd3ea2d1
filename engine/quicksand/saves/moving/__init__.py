"""Saves on their way to another machine, file by file: `source` has what leaves, `depot` takes what
arrives, and asks only for what is not there. How they talk is not their business."""
