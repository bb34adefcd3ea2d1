"""Lines of text about all sandboxes: how many there are, the free resources, and the words of an
empty panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand.things.status import Status

from quicksand_tui.model.amounts import size_text
from quicksand_tui.views.job_rows import jobs_text
from quicksand_tui.views.tables import nothing_matches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.world import World


USUAL_WIDTH = 70
"""Width in cells below which the first line omits the host."""


def top_texts(world: World, width: int, *, used: int, has_mouse: bool) -> tuple[str, str]:
    """Returns the left and the right text of the first line of the main screen; ``used`` cells of
    its ``width`` have other contents."""
    host = "" if width < USUAL_WIDTH else host_text(world)
    doing = jobs_text(world)
    if doing:
        # Running jobs matter more than the free memory and disk.
        host, doing = "", f" · {doing}"
    if has_mouse:
        doing += " · mouse: terminal"
    if world.read_only:
        doing = f" · read-only{doing}"
    room = width - len(host) - used
    return counts_text(world, room - len(doing)) + doing, host


def counts_text(world: World, room: int = 1000) -> str:
    """Returns counts such as "2 running · 1 stopped"; with little room "2 ● · 1 ○"."""
    if not world.loaded:
        return "reading…"
    text = counted(world.sandboxes) or "nothing runs"
    if len(text) <= room:
        return text
    counts = _counts(world.sandboxes)
    by_glyph: dict[str, int] = {}
    for state in Status:
        by_glyph[state.sign] = by_glyph.get(state.sign, 0) + counts.get(state, 0)
    return " · ".join(f"{count} {glyph}" for glyph, count in by_glyph.items() if count)


def counted(views: Iterable[SandboxView]) -> str:
    """Returns counts such as "2 running · 1 stopped"; "" if there is nothing to count."""
    counts = _counts(views)
    return " · ".join(f"{counts[state]} {state.value}" for state in Status if counts.get(state))


def _counts(views: Iterable[SandboxView]) -> dict[Status, int]:
    counts: dict[Status, int] = {}
    for view in views:
        counts[view.state] = counts.get(view.state, 0) + 1
    return counts


def host_text(world: World) -> str:
    host = world.host
    if host.memory_free is None:
        return ""
    free = f"{size_text(host.memory_free)} RAM · {size_text(host.disk_free)} disk free"
    if world.waiting:
        wait = "sandbox waits" if world.waiting == 1 else "sandboxes wait"
        free = f"{world.waiting} {wait} for a place in the fleet · {free}"
    if not host.spares:
        return free
    spares = "spare" if host.spares == 1 else "spares"
    return f"{host.spares} {spares} {size_text(host.spares_memory)} · {free}"


def empty_text(world: World, query: str) -> str:
    """Returns the text that the panel of sandboxes shows instead of rows."""
    if not world.loaded:
        return "Reading the store…"
    if query and world.sandboxes:
        return nothing_matches(query)
    if world.error:
        return f"The store cannot be read.\n{world.error}"
    return _no_sandboxes_text(world) if world.images_loaded else "Reading the images…"


def _no_sandboxes_text(world: World) -> str:
    usable = world.usable_images
    hint = world.keymap.hint
    if not usable:
        if world.images_error:
            return f"No sandboxes yet, and the images cannot be read.\n{world.images_error}"
        if world.images:
            return "No sandboxes yet, and no image can be used: 3 shows why."
        install = hint("install")
        return f"No image yet: {install} installs one, `quicksand-tui setup` builds debian."
    # Prefers debian, and images that need not be built, which takes minutes.
    best = min(usable, key=lambda image: (not image.is_built, image.name != "debian"))
    if best.is_built:
        return f"{hint('new')} starts your first sandbox, from {best.name}."
    return f"{hint('new')} builds {best.name}, in some minutes, and starts your first sandbox."
