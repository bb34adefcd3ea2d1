"""Commands about this host: its fitness, its use, and the program's own files."""
