"""Commands that keep and restore: checkpoints, saves, exported files and the trash."""
