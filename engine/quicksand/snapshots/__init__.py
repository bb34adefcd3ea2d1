"""Checkpoints: instants of a running sandbox, memory and disk, and going back to them."""
