"""Commands of a sandbox's screen, keyboard and mouse."""
