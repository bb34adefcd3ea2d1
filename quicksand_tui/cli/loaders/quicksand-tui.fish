# Completion of quicksand-tui for fish, which loads it when it is first needed.
quicksand-tui completions fish | source
