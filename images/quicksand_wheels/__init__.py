"""Python packages as files: wheels are found, fetched and read, and nothing in them is ever run.

Whoever offers a wheel is taken to be hostile: what is fetched is bounded and compared with the
digests that were given, no name in a wheel becomes a path, and an error is always a `WheelsError`.
This module has the errors; further modules are::

    sources   the places that offer wheels: an index, a forge's releases, a directory (`choose`)
    links     what they answer: a `Link` to each wheel
    wanted    a package and its acceptable versions
    web       fetching, resumed where a connection breaks (`Web`)
    wheel     one wheel as a file (`Wheel`), and what its name says
"""

from quicksand_wheels.errors import (
    AskedError,
    CertificatesError,
    NoAnswerError,
    RefusedError,
    WheelsError,
)

__all__ = ["AskedError", "CertificatesError", "NoAnswerError", "RefusedError", "WheelsError"]
