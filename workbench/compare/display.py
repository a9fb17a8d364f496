"""Shows a comparison in a notebook, as HTML: the verdict, and each stage with its error and its limit."""

from __future__ import annotations

import math
from typing import Any

from workbench.compare.comparison import Comparison
from workbench.compare.stage import StageComparison
from workbench.compare.verdict import MEASURE_NAMES, Verdict, judge
from workbench.display.html import Html, TableCell, card, element, facts, folded, notes, table
from workbench.display.words import number

_DECADES = 4.0  # of error / limit on either side of the limit in a bar


def comparison_html(comparison: Comparison) -> str:
    """Returns the verdict on a comparison above a table of its stages."""
    sides = [_side(meta) for meta in (comparison.reference, comparison.candidate)]
    title = f"Comparison of {sides[1]} with {sides[0]}, the reference" if any(sides) else "Comparison"
    return card(title, *_verdict_parts(judge(comparison), comparison), stage_table(comparison))


def verdict_html(verdict: Verdict) -> str:
    """Returns a verdict: its sentences and its details."""
    return card("Verdict", *_sentences(verdict))


def _sentences(verdict: Verdict) -> list[Html]:
    outcome, *other_sentences = verdict.sentences
    sign = element("span", "✓ within" if verdict.within else "✗ beyond", class_="good" if verdict.within else "bad")
    return [element("p", sign, " ", outcome, class_="text"), notes([*other_sentences, *verdict.further_details])]


def _verdict_parts(verdict: Verdict, comparison: Comparison) -> list[Html]:
    tolerance_facts = facts(comparison.about_tolerance, f"{len(comparison.stages)} stages")
    warnings = [folded("Warnings", notes(comparison.warnings))] if comparison.warnings else []
    return [*_sentences(verdict), tolerance_facts, *warnings]


def stage_table(comparison: Comparison) -> Html:
    """Returns every stage with its first measure, the limit, and a bar: the right half is beyond the limit."""
    rows = [_row(comparison, each) for each in comparison.stages]
    return table(("stage", "", "measure", "error", "limit", "error / limit", "remark"), rows, words=(0, 1, 2, 5, 6))


def _row(comparison: Comparison, each: StageComparison) -> tuple[Any, ...]:
    passes = comparison.passes(each)
    sign = TableCell("✓", "good") if passes else TableCell("✗", "bad")
    remark = each.mismatch or each.hint or ""
    measured = _deciding(each)
    if measured is None:
        return each.stage, sign, "", "", "", "", remark
    name, value, limit = measured
    ratio = _bar(value, limit, name) if name != "top1" else Html("")
    return each.stage, sign, MEASURE_NAMES[name], number(value), number(limit), ratio, remark


def _deciding(each: StageComparison) -> tuple[str, float, float] | None:
    """Returns name, value and limit of a stage's measure: one beyond its limit, or else the first one."""
    if each.beyond:
        excess = each.beyond[0]
        return excess.measure, excess.value, excess.limit
    return next(((name, value, getattr(each.limits, name)) for name, value in each.measured.items()), None)


def _bar(value: float, limit: float, name: str) -> Html:
    """Returns a bar whose middle is the limit, on a logarithmic scale."""
    if not value > 0:
        share = 0.0
    elif not limit > 0 or not math.isfinite(value):
        share = 1.0
    else:
        share = min(max(0.5 + math.log10(value / limit) / (2 * _DECADES), 0.0), 1.0)
    tooltip = f"{MEASURE_NAMES[name]}: {number(value / limit)} times the limit" if limit > 0 else MEASURE_NAMES[name]
    kind = "bar beyond" if value > limit else "bar"
    return element("span", element("i", style=f"width: {100 * share:.0f}%"), class_=kind, title=tooltip)


def _side(meta: dict[str, Any]) -> str:
    arithmetic = meta.get("quantization") or meta.get("dtype")
    return " ".join(str(each) for each in (meta.get("model"), meta.get("runtime"), arithmetic) if each)
