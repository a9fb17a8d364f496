"""Shows a parity run in a notebook, as HTML: the verdict on each candidate, a heat map, and every stage."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.compare.display import stage_table
from workbench.display.html import Html, card, element, facts, folded
from workbench.display.pictures import picture
from workbench.parity_lab.outcome import Outcome, ParityRun

MOST_STAGES = 60  # rows of the heat map
SIGNS = {"within": "✓", "beyond": "✗", "unavailable": "–", "unusable": "!"}


def run_html(run: ParityRun) -> str:
    """Returns the verdicts of a run above the errors of its stages."""
    about = facts(f"input: {run.source}", f"reference: {run.reference.name}", run.mode)
    parts = [_verdict(each) for each in run.outcomes]
    folds = [
        folded(f"All stages of {each.name}", stage_table(each.comparison)) for each in run.outcomes if each.comparison
    ]
    return card(f"Parity of {run.model}", *parts, _heat_map(run), *folds, about)


def _verdict(outcome: Outcome) -> Html:
    kind = {"within": "good", "beyond": "bad"}.get(outcome.status, "quiet")
    status = element("span", f"{SIGNS[outcome.status]} {outcome.name}: {outcome.status}", class_=kind)
    return element("div", element("p", status), element("p", outcome.sentence))


def _heat_map(run: ParityRun) -> Html:
    """Returns a picture of the errors of all candidates; nothing without a candidate that was compared."""
    compared = [each for each in run.outcomes if each.comparison]
    held: list[dict[str, Any]] = [
        {stage.stage: stage for stage in each.comparison.stages if stage.numbers}
        for each in compared
        if each.comparison
    ]
    stages = list(dict.fromkeys(stage for each in held for stage in each))[:MOST_STAGES]
    if not stages:
        return Html("")
    errors, limits = (
        np.array([[_value(each.get(stage), kind) for each in held] for stage in stages]) for kind in ("error", "limit")
    )

    def draw() -> Any:
        from workbench.plots.heatmap import heat_figure

        return heat_figure(stages, [each.name for each in compared], errors, limits)

    return picture(draw, "the relative L2 error of each stage of each candidate")


def _value(stage: Any, kind: str) -> float:
    if stage is None:
        return float("nan")
    return float(stage.numbers.relative_l2 if kind == "error" else stage.limits.relative_l2)
