"""Run in each Python kernel before its first cell: tables are also sent as their columns."""

from __future__ import annotations

import json
from typing import Any

from IPython.core.formatters import BaseFormatter
from traitlets import ObjectName, Unicode

ROWS_MAX = 10_000
"""The most rows sent as columns; longer tables have their text and HTML like other values."""


class TableFormatter(BaseFormatter):  # type: ignore[misc]
    """The formatter of pandas' tables, used once pandas is loaded."""

    format_type = Unicode("application/vnd.quicksand.table+json")
    print_method = ObjectName("_repr_quicksand_table_")
    _return_type = dict


def columns(table: Any) -> dict[str, Any] | None:
    """A table as {column: [values]}, with dates as text."""
    if len(table) > ROWS_MAX:
        return None
    return {
        str(name): json.loads(table.iloc[:, at].to_json(orient="values", date_format="iso"))
        for at, name in enumerate(table.columns)
    }


def install(shell: Any) -> None:
    """Make a shell of IPython send tables in this form."""
    display = shell.display_formatter
    formatter = TableFormatter(parent=display)
    formatter.for_type_by_name("pandas.core.frame", "DataFrame", columns)
    display.formatters[formatter.format_type] = formatter
