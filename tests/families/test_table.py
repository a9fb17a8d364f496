"""The table of families: its entries name existing modules and functions, and no other module lists families."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.families import FAMILIES, Family, load
from workbench.families.table import BUILT_IN

ROOT = Path(__file__).resolve().parents[2]
NAMES = {family.name for family in BUILT_IN}
TABLE = ROOT / "workbench" / "families" / "table.py"


def families_in(node: ast.expr) -> set[str]:
    """Returns the families named in a literal's elements, keys or values, as `fsmn_vad` or as `fsmn-vad`."""
    if isinstance(node, ast.Dict):
        elements: list[ast.expr | None] = [*node.keys, *node.values]
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        elements = list(node.elts)
    else:
        return set()
    texts = {each.value for each in elements if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return {text.replace("-", "_") for text in texts} & NAMES


def tables_in(root: Path) -> Iterator[str]:
    """Yields literals that name two families or more, outside the table and the families' own files."""
    for path in sorted(each for room in ("workbench", "panels") for each in (root / room).rglob("*.py")):
        if path.stem in NAMES or path.relative_to(root) == TABLE.relative_to(ROOT):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.expr) and len(named_families := families_in(node)) > 1:
                yield f"{path.relative_to(root)}:{node.lineno} names {', '.join(sorted(named_families))}"


def test_no_other_module_has_a_table_of_families() -> None:
    assert list(tables_in(ROOT)) == []


@pytest.mark.parametrize(
    "text",
    [
        'X = ("sensevoice", "paraformer")',
        'X = {"sensevoice": 1, "fsmn-vad": 2}',
        'def f(x):\n    return x in ["causal_lm", "funasr-nano"]',
        'X = {"a": "fireredasr", "b": "causal_lm"}',
    ],
)
def test_a_planted_table_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "workbench").mkdir()
    (tmp_path / "panels").mkdir()
    (tmp_path / "panels" / "new.py").write_text(text)
    (tmp_path / "workbench" / "sensevoice.py").write_text(text)  # a family's own file
    [line] = tables_in(tmp_path)
    assert line.startswith("panels/new.py:")


def parts(family: Family) -> Iterator[str]:
    """Returns all lazy names of a family."""
    yield from (cell.module for cell in family.cells.values() if cell.module)
    yield from family.vllm.classes.values()
    yield from family.gguf.layouts.values()
    others = (family.gguf.converter, family.vllm.writer, family.vllm.wording, family.recipe, family.explain)
    yield from filter(None, others)


@pytest.mark.parametrize("family", BUILT_IN, ids=lambda each: each.name)
def test_every_lazily_loaded_name_exists(family: Family) -> None:
    for place in (f"{family.module}:{family.recognise}", f"{family.module}:{family.options}", *parts(family)):
        module, _, name = place.partition(":")
        tree = ast.parse(ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        defined |= {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        assert not name or name in defined, place
    assert set(family.gguf.layouts) <= set(family.gguf.architectures)


def test_every_family_says_how_to_recognise_its_checkpoints() -> None:
    hints: dict[str | None, set[str]] = {}
    for family in BUILT_IN:
        hints.setdefault(family.explain, set()).add(family.hint)
    assert all(len(each) == 1 and "" not in each for each in hints.values()), "one layout of files has one hint"


def test_built_in_family_is_found_without_reading_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.families.outside.read_outside", lambda own: pytest.fail("other packages were read"))
    fresh = type(FAMILIES)()
    assert fresh["sensevoice"].title == "SenseVoice"


def test_load_resolves_module_and_attribute_names() -> None:
    assert load("workbench.families.table:BUILT_IN") is BUILT_IN
    assert load("workbench.families.table").BUILT_IN is BUILT_IN
    with pytest.raises(ImportError):
        load("workbench.families.nobody")
