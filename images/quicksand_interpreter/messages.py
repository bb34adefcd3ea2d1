"""The messages of a kernel (https://jupyter-client.readthedocs.io/en/stable/messaging.html), as the
lines that clients read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

Line = dict[str, Any]
"""One object of a stream, with its "type"."""

DATA = "application/vnd.quicksand.table+json"
"""The columns of a table, which `startup.py` adds to it."""

KEYS: Mapping[str, str] = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "text/latex": "latex",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "application/json": "json",
    "application/javascript": "javascript",
    DATA: "data",
}
"""The keys of a result's forms. Others are in its "extra"."""

END: Line = {"type": "end_of_execution"}


def line_of(kind: str, content: Mapping[str, Any]) -> Line | None:
    """Return the line for a message of a kernel's output; None for one that clients do not see."""
    match kind:
        case "stream":
            name = "stderr" if content.get("name") == "stderr" else "stdout"
            return {"type": name, "text": content.get("text", ""), "timestamp": time.time_ns()}
        case "execute_result" | "display_data":
            return _result(content.get("data", {}), is_main=kind == "execute_result")
        case "error":
            return error(
                content.get("ename", ""),
                content.get("evalue", ""),
                "\n".join(content.get("traceback", ())),
            )
        case "execute_input":
            count = content.get("execution_count")
            return {"type": "number_of_executions", "execution_count": count}
        case _:
            return None


def error(name: str, value: str, traceback: str) -> Line:
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def _result(data: Mapping[str, Any], *, is_main: bool) -> Line:
    line: Line = {"type": "result", "is_main_result": is_main}
    extra = {}
    for mime, value in data.items():
        if (key := KEYS.get(mime)) is None:
            extra[mime] = value
        elif isinstance(value, str) and key in ("png", "jpeg", "pdf"):
            line[key] = value.strip()  # kernels end base64 with a line feed
        else:
            line[key] = value
    text = line.get("text")
    if isinstance(text, str) and len(text) > 1 and text[0] == text[-1] == "'":
        line["text"] = text[1:-1]  # clients expect a string without its quotes
    if extra:
        line["extra"] = extra
    return line
