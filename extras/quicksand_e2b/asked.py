"""The contents of a request for a new sandbox."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from quicksand_e2b import not_here
from quicksand_e2b.errors import ApiError
from quicksand_e2b.fields import Body
from quicksand_e2b.network import Wanted

TIMEOUT_S = 300
"""Seconds that a sandbox has if its request says nothing (v2)."""

OLD_TIMEOUT_S = 15
"""Seconds that a sandbox has if an older client's request says nothing (v1)."""

TIMEOUT_MAX_S = 30 * 24 * 3600

KILL = "kill"
PAUSE = "pause"

METADATA_MAX = 64
"""The most entries of metadata, and of variables, of one sandbox."""

VALUE_MAX = 32 * 1024
"""The most characters of an entry's value."""

_TEMPLATE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}(?::[A-Za-z0-9_.-]{1,64})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for a new sandbox."""

    template: str
    timeout_s: int
    metadata: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    on_timeout: str = KILL
    auto_resume: bool = False
    pauses_memory: bool = True
    network: Wanted = field(default_factory=Wanted)

    @classmethod
    def parse(cls, body: Body, *, timeout_s: int) -> Asked:
        """Reads a request. ``timeout_s`` is the default. Raises ApiError (400; 501 for features
        that do not exist here)."""
        for name, what in not_here.FIELDS.items():
            if body.any(name):
                raise not_here.not_here(what)
        auto_resume = body.part("autoResume").flag("enabled", False)
        pauses_memory = body.flag("autoPauseMemory", True)
        if auto_resume and not pauses_memory:
            raise ApiError(400, "autoResume needs the memory: it cannot be with autoPauseMemory")
        return cls(
            template=template_name(body.text("templateID")),
            timeout_s=body.whole("timeout", timeout_s, most=TIMEOUT_MAX_S),
            metadata=_small(body.text_map("metadata"), "metadata"),
            env=_variables(body.text_map("envVars")),
            on_timeout=PAUSE if body.flag("autoPause", False) else KILL,
            auto_resume=auto_resume,
            pauses_memory=pauses_memory,
            network=Wanted.parse(
                body.part("network"), internet=body.flag("allow_internet_access", True)
            ),
        )


def template_name(text: str) -> str:
    """Returns the name of an image, a save or a snapshot; never a path. Raises ApiError (400)."""
    if not _TEMPLATE.fullmatch(text):
        raise ApiError(
            400, f"{text!r:.100} is no template: name an image, a save or a snapshot of this server"
        )
    return text.removesuffix(":default").removesuffix(":latest")


def _variables(found: dict[str, str]) -> dict[str, str]:
    for name in found:
        if not name or "=" in name:
            raise ApiError(400, f"envVars: {name!r:.80} is not a name of a variable")
    return _small(found, "envVars")


def _small(found: dict[str, str], name: str) -> dict[str, str]:
    if len(found) > METADATA_MAX:
        raise ApiError(400, f"{name} has {len(found)} entries; {METADATA_MAX} is the most")
    for key, value in found.items():
        if len(key) > 256 or len(value) > VALUE_MAX:
            raise ApiError(400, f"{name}.{key:.80} is longer than {VALUE_MAX} characters")
    return found
