"""What the author of a port can do about a verdict: name a precision, change a layout, write another stage."""

from __future__ import annotations

import re

from workbench.compare.comparison import REQUESTED, Comparison
from workbench.compare.presets import PRESETS
from workbench.compare.stage import StageComparison
from workbench.core.phrases import enumerated
from workbench.trace.order import are_known, computation_order
from workbench.trace.step_names import pass_of

_FEW_STAGES = 3  # between two compared stages, of which one is worth writing
_LAYER = re.compile(r".+\.layers\.[0-9]{1,9}")
_INSIDE = re.compile(_LAYER.pattern + r"\..+")
_COARSE_PRESETS = ("f16", "q8_0", "bf16")  # of arithmetic that a runtime may choose by itself


def coarser_arithmetic(comparison: Comparison, first: StageComparison | None) -> list[str]:
    """Returns the advice to name a precision, if a candidate that names none may have computed in 16 or 8 bits.

    Such a candidate rounds from its first layer on: a layer within tolerance before the first error speaks against it.
    """
    has_named = any(comparison.candidate.get(key) for key in ("dtype", "quantization"))
    if first is None or first.hint or first.mismatch or has_named or comparison.reason == REQUESTED:
        return []
    if comparison.tolerances.rules or comparison.tolerances.preset.name != "f32":
        return []
    before_first = comparison.stages[: comparison.stages.index(first)]
    if any(".layers." in each.stage for each in before_first):
        return []
    needed = [each.passing_preset for each in comparison.stages if each.numbers and not comparison.passes(each)]
    if not needed or not all(name in _COARSE_PRESETS for name in needed):
        return []
    widest = max((name for name in needed if name), key=list(PRESETS).index)
    return [
        f"But its arrays are within tolerance {widest}: if the program computed in bfloat16, float16 or 8 bits, as "
        "some do by default, name its precision (--precision bfloat16)."
    ]


def stages_between(comparison: Comparison, first: StageComparison | None) -> list[str]:
    """Returns the advice which stage a candidate could write too, if several before its first error are unknown."""
    if first is None or first.explanation or first.mismatch or comparison.isolated:
        return []
    names = [each.stage for each in comparison.stages]
    order = computation_order([*names, *comparison.only_reference])
    if not are_known(order) or pass_of(first.stage) != pass_of(order[0]):
        return []
    place = names.index(first.stage)
    begin = order.index(names[place - 1]) + 1 if place else 0
    between = [each for each in order[begin : order.index(first.stage)] if not _INSIDE.fullmatch(each)]
    if len(between) < _FEW_STAGES:
        return []
    whole_layers = [each for each in between if _LAYER.fullmatch(each)] or between
    middle = whole_layers[len(whole_layers) // 2]
    place_words = f"between {names[place - 1]} and {first.stage}" if place else f"before {first.stage}"
    return [
        f"The candidate has none of the {len(between)} stages {place_words}: {middle}, in their middle, would halve "
        "the search."
    ]


def other_layouts(comparison: Comparison, first: StageComparison | None) -> list[str]:
    """Returns the rules that change the layouts of the stages other than the first in error.

    A stage whose numbers differ too much to show its layout has that of the stages with the same shapes.
    """
    if first is None:
        return []
    rules_by_shapes: dict[tuple[tuple[int, ...], ...], set[str]] = {}
    for each in comparison.stages:
        if each.rule:
            rules_by_shapes.setdefault(each.shapes, set()).add(each.rule)
    stages: dict[str, list[str]] = {}
    for each in comparison.stages:
        known_rules = rules_by_shapes.get(each.shapes, set()) if each.mismatch else set()
        rule = each.rule or (next(iter(known_rules)) if len(known_rules) == 1 else "")
        if rule and each is not first:
            stages.setdefault(rule, []).append(each.stage)
    rules = [f"{rule} ({names_of(names, 3)})" for rule, names in stages.items()]
    return [f"Rules for other stages: {'; '.join(rules)}."] if rules else []


def names_of(stages: list[str], limit: int = 8) -> str:
    """Returns the names of some stages, and the number of the others."""
    return enumerated(stages if len(stages) <= limit else [*stages[: limit - 1], f"{len(stages) - limit + 1} more"])
