"""The messages of the protocol: each module decodes requests and encodes their responses.

The modules have no state and no input or output. Each function stands beside its section of
[MS-SMB2].
"""
