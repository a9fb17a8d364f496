"""The heat map of a parity run as a figure: the relative L2 error of each stage of each candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.compare.stage import StageComparison
from workbench.parity_lab.outcome import ParityRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_STAGES = 60  # rows


def has_map(run: ParityRun) -> bool:
    """Returns whether any stage of any candidate was compared as numbers."""
    return any(each.numbers for outcome in run.outcomes if outcome.comparison for each in outcome.comparison.stages)


def map_figure(run: ParityRun) -> Figure:
    """Returns the heat map of the first MAX_STAGES stages; the run must have one (`has_map`)."""
    from workbench.plots.heatmap import heat_figure

    comparisons = [(each.name, each.comparison) for each in run.outcomes if each.comparison]
    numeric_stages = [
        {stage.stage: stage for stage in comparison.stages if stage.numbers} for _, comparison in comparisons
    ]
    stages = list(dict.fromkeys(stage for each in numeric_stages for stage in each))[:MAX_STAGES]
    errors, limits = (
        np.array([[value(each.get(stage)) for each in numeric_stages] for stage in stages])
        for value in (_error, _limit)
    )
    return heat_figure(stages, [name for name, _ in comparisons], errors, limits)


def _error(stage: StageComparison | None) -> float:
    return stage.numbers.relative_l2 if stage and stage.numbers else np.nan


def _limit(stage: StageComparison | None) -> float:
    return stage.limits.relative_l2 if stage else np.nan
