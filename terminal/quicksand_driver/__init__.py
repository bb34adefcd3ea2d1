"""A driver for apps of Textual that people use over slow lines, and in which they type into other
programs.

The public modules: `textual_private` (the driver, and all uses of Textual's private API but those
of `textual_compositor`, which draws no more than the line can take), `probe` (the terminal, from
before Textual is imported until it is restored), `terminal_queries` (what a terminal can do, as it
answers), `input_splitter` (keys as they were typed), `shown` (only what differs is written) and
`columns` (characters that terminals count differently). Only the first two need Textual. Terminals
are not trusted: answers are bounded, and never become keys.
"""
