"""The guest agent is as its drawing says: rooms, arrows that all lead down, and no circle."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.each import each
from tests.unit.test_house import ROOT, Drawing, Graph, rooms

SOURCES = ROOT / "guest-agent" / "src"
DRAWING = Drawing("agent", "Rooms of the guest agent")

# A path from the root of the crate or from a parent module, wherever it is written, and a module
# that is declared: whoever declares one uses it.
PATH = re.compile(r"\b(crate|super)\b((?:\s*::\s*(?:super\b|[a-z_]\w*))*)(\s*::\s*\{)?")
DECLARED = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?mod (\w+);", re.MULTILINE)
# Comments, characters (a quote may be one), and strings.
NOT_CODE = re.compile(r"""//[^\n]*|'(?:\\.|[^'\\])'|r#".*?"#|"(?:\\.|[^"\\])*\"""", re.DOTALL)
INLINE_TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod tests \{\n.*?^\}", re.MULTILINE | re.DOTALL)


def modules(sources: Path) -> dict[str, Path]:
    """Modules by their path in the crate; the root is the empty one."""
    found = {}
    for path in sources.rglob("*.rs"):
        parts = path.relative_to(sources).with_suffix("").parts
        found["::".join(part for part in parts if part not in ("mod", "main"))] = path
    return found


def leaves(group: str) -> list[str]:
    """The paths that a group in braces stands for: ``a::{b, c}, d`` has three."""
    found, prefixes, path = [], [""], ""
    for token in re.findall(r"\w+ as \w+|\w+|[{},]", group):
        if token == "{":
            prefixes.append(f"{prefixes[-1]}{path}")
            path = ""
        elif token in "},":
            if path:
                found.append(f"{prefixes[-1]}{path}")
            path = ""
            if token == "}":
                prefixes.pop()
        else:
            path += f"::{token.split()[0]}"
    return [*found, *([path] if path else [])]


def group_at(text: str, start: int) -> str:
    """What stands in the braces that are open at ``start``."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return text[start:place]
    return text[start:]


def wanted(text: str, here: list[str]) -> set[str]:
    """The full paths that a module's text names; ``here`` is the module that ``self`` would be."""
    found = {"::".join([*here, name]) for name in DECLARED.findall(text)}
    for match in PATH.finditer(text):
        start, rest, group = match.groups()
        steps = re.findall(r"\w+", rest)
        base = list(here) if start == "super" else []
        for up in [start, *steps]:
            if up != "super":
                break
            base = base[:-1]
        below = [step for step in steps if step != "super"]
        ends = leaves(group_at(text, match.end())) if group else [""]
        found |= {"::".join([*base, *below]).removesuffix("::") + end for end in ends}
    return {path.removeprefix("::") for path in found}


def graph(sources: Path) -> Graph:
    """Which modules each one uses. Tests are a part of the module that they stand in."""
    known = modules(sources)
    found: Graph = {}
    for name, path in known.items():
        text = NOT_CODE.sub("", path.read_text())
        here = name.split("::") if name else []
        inside = "".join(INLINE_TESTS.findall(text))
        paths = wanted(INLINE_TESTS.sub("", text), here) | wanted(inside, [*here, "tests"])
        owner = name.removesuffix("::tests")
        found.setdefault(owner, set()).update(module_of(path, known) for path in paths)
    return {
        name: {use.removesuffix("::tests") for use in uses} - {name} for name, uses in found.items()
    }


def module_of(path: str, known: dict[str, Path]) -> str:
    """The module that a path leads into: the longest part of it that is one."""
    while path not in known:
        path = path.rpartition("::")[0]
    return path


def circle(found: Graph) -> list[str]:
    """Modules that use each other in a circle, if there are any."""
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def agent_rooms(found: Graph) -> Graph:
    """Which rooms use which. The root of the crate is in none: it declares them all."""
    named = {one: f"agent.{one}".rstrip(".").replace("::", ".") for one in found}
    return rooms({named[one]: {named[use] for use in uses} for one, uses in found.items()}, "agent")


# Nothing of it is a use of another module.
HARMLESS = """// use crate::top;
const QUOTE: char = '"';
const TEXT: &str = "crate::top";
#[cfg(test)]
mod tests {
    use super::*;
}
"""


def test_no_module_of_the_agent_uses_itself_by_way_of_others() -> None:
    found = graph(SOURCES)
    assert len(found) > 40
    assert not circle(found)


def test_the_drawing_equals_the_uses() -> None:
    assert DRAWING.arrows() == agent_rooms(graph(SOURCES))


def test_the_drawing_has_the_rooms_in_order_so_that_all_arrows_lead_down() -> None:
    above: set[str] = set()
    for room, others in DRAWING.arrows().items():
        above.add(room)
        assert not others & above, room


def test_every_module_is_in_a_room_that_says_what_belongs_there() -> None:
    assert [path.name for path in SOURCES.glob("*.rs")] == ["main.rs"]
    for room in DRAWING.arrows():
        text = (SOURCES / room / "mod.rs").read_text()
        assert len(re.findall(r"^//!", text, re.MULTILINE)) >= 3, room


def test_a_use_of_a_room_is_found_though_no_module_is_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "main.rs").write_text("mod low;\nmod top;\n")
    for room, text in {"low": "use crate::top::b::B;", "top": "use crate::low::b::B;"}.items():
        (tmp_path / room).mkdir()
        (tmp_path / room / "mod.rs").write_text("pub mod a;\npub mod b;\n")
        (tmp_path / room / "a.rs").write_text(f"{text}\n")
        (tmp_path / room / "b.rs").write_text("pub struct B;\n")
    found = graph(tmp_path)
    assert not circle(found)
    assert agent_rooms(found) == {"low": {"top"}, "top": {"low"}}


def test_every_file_of_the_agent_that_is_named_elsewhere_is_there() -> None:
    texts = [
        path.read_text()
        for place, kind in (("docs", "*.md"), ("engine", "*.py"), ("images", "*.py"))
        for path in (ROOT / place).rglob(kind)
    ]
    named = {name for text in texts for name in re.findall(r"guest-agent/src/[\w/]+\.rs", text)}
    assert len(named) > 3
    assert not {name for name in named if not (ROOT / name).is_file()}


@each(
    "back",
    [
        "use crate::top;",
        "use crate::{low::deep, top};",
        "use crate::{low::{deep, deep::Deep as Other}, top::{Top, go}};",
        "fn go() { crate::top::go() }",
        "use super::super::top;",
        "use super::low_too;",
        "use super::Low;",
        "#[cfg(test)]\nmod tests {\n    use super::super::Low;\n}",
    ],
)
def test_a_circle_is_found_however_it_is_written(tmp_path: Path, back: str) -> None:
    (tmp_path / "low").mkdir()
    (tmp_path / "main.rs").write_text("mod low;\nmod top;\n")
    (tmp_path / "top.rs").write_text("use crate::low;\n")
    (tmp_path / "low" / "mod.rs").write_text("mod deep;\nmod low_too;\npub struct Low;\n")
    (tmp_path / "low" / "low_too.rs").write_text("use super::deep::Deep;\n")
    deep = tmp_path / "low" / "deep.rs"
    deep.write_text(HARMLESS)
    assert not circle(graph(tmp_path))
    deep.write_text(f"{HARMLESS}{back}\n")
    assert circle(graph(tmp_path))


SUBJECTLESS = re.compile(
    r"^\s*//[/!] (?:.*[.:] )?(?:What|Who|Whoever|Whose|Such|Nobody)\b(?!.*\?)", re.MULTILINE
)


def test_no_doc_comment_has_a_what_or_a_who_for_its_subject() -> None:
    found = [
        f"{path.relative_to(SOURCES)}: {match[0].strip()}"
        for path in sorted(SOURCES.rglob("*.rs"))
        for match in SUBJECTLESS.finditer(path.read_text())
    ]
    assert found == []
