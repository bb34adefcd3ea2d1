"""Commands about this host: its sandboxes and images, its fitness and use, and the program's own
files."""
