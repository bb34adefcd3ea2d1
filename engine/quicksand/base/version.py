"""The version of the distribution that this engine is a part of."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "quicksand-tui"

__version__: str
"""As in `version_text`, which is called only when this is used (PEP 562)."""


def version_text() -> str:
    """Return the version; "" where the package is not installed but only lies in a directory."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return ""


def __getattr__(name: str) -> str:
    if name == "__version__":
        return version_text()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
