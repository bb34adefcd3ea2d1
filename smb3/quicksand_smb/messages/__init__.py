"""The messages of the protocol: each module decodes requests and encodes their responses.

No state and no input or output: bytes in, frozen values out, and back. Where a request and its
response are plain rows of numbers they stand side by side with the section of [MS-SMB2].
"""
