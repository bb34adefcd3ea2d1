"""The guest's screen, keyboard and pointer, of a machine with the option ``enable_display``."""
