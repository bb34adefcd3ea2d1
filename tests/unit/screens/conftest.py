"""The clocks of the screens that are shown here are those of the app's tests."""

from tests.unit.app.conftest import utc

__all__ = ["utc"]
