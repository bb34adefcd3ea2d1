"""The version of the distribution that this engine is a part of."""

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "quicksand-tui"


def version_text() -> str:
    """Return the version, "" where the package is not installed but only lies in a directory."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return ""
