"""The command line: one module per group of verbs, none of which loads Textual."""
