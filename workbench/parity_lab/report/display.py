"""Shows a parity run in a notebook, as HTML: the verdict on each candidate, a heat map, and every stage."""

from __future__ import annotations

from functools import partial

from workbench.compare.display import stage_table
from workbench.display.html import Html, card, element, facts, folded
from workbench.display.pictures import picture
from workbench.parity_lab.outcome import STATUS, Outcome, ParityRun
from workbench.parity_lab.report.map_figure import has_map, map_figure


def run_html(run: ParityRun) -> str:
    """Returns the verdicts of a run above the errors of its stages."""
    run_facts = facts(f"input: {run.source}", f"reference: {run.reference.name}")
    parts = [_verdict(each) for each in run.outcomes]
    folds = [
        folded(f"All stages of {each.name}", stage_table(each.comparison)) for each in run.outcomes if each.comparison
    ]
    return card(
        f"Parity of {run.model}", *parts, _heat_map(run), *folds, run_facts, element("p", run.mode, class_="quiet")
    )


def _verdict(outcome: Outcome) -> Html:
    kind = {"within": "good", "beyond": "bad"}.get(outcome.status, "quiet")
    status = element("span", f"{STATUS[outcome.status][0]} {outcome.name}: {outcome.status}", class_=kind)
    return element("div", element("p", status), element("p", outcome.sentence))


def _heat_map(run: ParityRun) -> Html:
    """Returns a picture of the errors of all candidates; nothing without a candidate that was compared."""
    if not has_map(run):
        return Html("")
    return picture(partial(map_figure, run), "the relative L2 error of each stage of each candidate")
