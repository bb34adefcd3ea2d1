"""Turns images into rows of their table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quicksand_tui.model.amounts import age_text, size_text
from quicksand_tui.views.filters import filtered, in_order
from quicksand_tui.views.rows import NAME_MAX, PADDING, Cell, Column, Row

if TYPE_CHECKING:
    from quicksand.things.image_info import ImageInfo

    from quicksand_tui.model.world import World

IMAGE_ORDERS = ("name", "age", "size")
NO_IMAGES_TEXT = "No images yet: `quicksand-tui setup` builds debian."


def plan_image_columns(width: int) -> tuple[Column, ...]:
    columns = [Column("name", "Name", 0)]
    if width >= 40:
        columns.append(Column("version", "Version", 10))
    columns.append(Column("size", "Size", 8, right=True))
    if width >= 30:
        columns.append(Column("age", "Age", 4, right=True))
    used = sum(c.width + PADDING for c in columns)
    name = max(8, min(NAME_MAX, width - used))
    return tuple(replace(c, width=name) if c.key == "name" else c for c in columns)


def arrange_images(views: Sequence[ImageInfo], query: str, order: str) -> Sequence[ImageInfo]:
    keys: dict[str, Callable[[ImageInfo], Any]] = {
        "age": lambda view: -(view.built or 0.0),
        "size": lambda view: -(view.size or 0),
    }
    return in_order(filtered(views, query, _image_text), order, keys)


def _image_text(view: ImageInfo) -> str:
    return f"{view.name} {view.version} {view.arch}".lower()


def image_row(image: ImageInfo, world: World) -> Row:
    age = None if image.built is None else world.taken - image.built
    if image.error:
        size = Cell("✗ broken", "error")
    else:
        size = Cell(size_text(image.size) if image.is_built else "to build", "muted")
    cells = {
        "name": Cell(image.name, "muted" if image.error or not image.is_built else ""),
        "version": Cell(image.version, "muted"),
        "size": size,
        "age": Cell(age_text(age), "muted"),
    }
    return Row(image.name, cells)
