"""Commands that show what sandboxes are and do."""
