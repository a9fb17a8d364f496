"""Selects the most interesting stages of a comparison, and draws them as parts of an HTML page."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from workbench.compare.comparison import Comparison
from workbench.compare.measures import as_table
from workbench.compare.noise.report import NoiseReport
from workbench.compare.stage import StageComparison
from workbench.plots import stages as plots
from workbench.trace.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIMILAR_RANGES = 3.0  # both sides share colours if the candidate's range is at most this multiple of the reference's


def stages_to_show(
    comparison: Comparison, largest_own: str | None, limit: int = 4, faulty: str | None = None
) -> list[StageComparison]:
    """Returns the most interesting stages of numbers, in the order of the computation.

    These are the faulty stage, the first divergent one, the one where the error grows most, and then those with the
    largest errors relative to their limits.
    """
    numeric = [
        each
        for each in comparison.stages
        if not (each.sequence or each.streams or each.logprobs) and (each.differs or each.mismatch)
    ]
    first = [each for each in numeric if each.stage == faulty]
    first += [each for each in numeric if not comparison.passes(each)][:1]
    largest_growth = [each for each in numeric if each.stage == largest_own]
    ranked = dict.fromkeys(
        each.stage for each in (*first, *largest_growth, *sorted(numeric, key=_excess, reverse=True))
    )
    names = list(ranked)[:limit]
    return [each for each in comparison.stages if each.stage in names]


def _excess(each: StageComparison) -> float:
    """Returns the relative L2 error as a multiple of its limit."""
    if each.numbers is None or each.numbers.nonfinite_differences:
        return np.inf
    return each.numbers.relative_l2 / max(each.limits.relative_l2, 1e-12)


def stage_pictures(each: StageComparison, reference: Trace, candidate: Trace) -> Iterator[str]:
    """Yields both arrays, their difference, and the error over positions and channels, as HTML figures."""
    arrays = [np.asarray(trace[each.stage]) for trace in (reference, candidate)]
    if each.stage.startswith("answer."):  # the positions that are comparable
        arrays = [array[: shape[0]] for array, shape in zip(arrays, each.shapes)]
    reference_table, candidate_table = map(as_table, arrays)
    if each.numbers is None:  # the shapes differ
        for table, side in ((reference_table, "reference"), (candidate_table, "candidate")):
            yield picture(plots.array_figure(table), f"{side}, {_size(table)}", f"{each.stage} of the {side}")
        return
    if reference_table.shape[1] == 1:
        yield picture(
            plots.curves_figure(reference_table[:, 0], candidate_table[:, 0]), "both", f"{each.stage} of both sides"
        )
    else:
        reference_limits, candidate_limits = plots.value_limits(reference_table), plots.value_limits(candidate_table)
        similar_ranges = (
            candidate_limits[1] - candidate_limits[0] < _SIMILAR_RANGES * (reference_limits[1] - reference_limits[0])
            and candidate_limits[0] < reference_limits[1]
            and reference_limits[0] < candidate_limits[1]
        )
        for table, side, limits in (
            (reference_table, "reference", reference_limits),
            (candidate_table, "candidate", reference_limits if similar_ranges else candidate_limits),
        ):
            figure = plots.array_figure(table, limits)
            yield picture(figure, f"{side}, {_size(table)}{_marked(table)}", f"{each.stage} of the {side}")
        difference = plots.difference_figure(reference_table, candidate_table)
        yield picture(difference, "candidate minus reference", f"difference at {each.stage}")
    for errors, axis_name in ((each.numbers.by_position, "position"), (each.numbers.by_channel, "channel")):
        if errors.size > 1:
            figure = plots.error_figure(errors, axis_name)
            yield picture(figure, f"error over {axis_name}s", f"error of {each.stage} over {axis_name}s")


def noise_picture(noise: NoiseReport) -> str:
    """Returns the distances from float64 over the stages, as an HTML figure."""
    figure = plots.distances_figure(
        [each.stage for each in noise.stages],
        [each.reference for each in noise.stages],
        [each.candidate for each in noise.stages],
        [each.bound for each in noise.stages],
    )
    return picture(figure, "distance from the reference in float64", "distances from float64", "broad")


def picture(figure: Figure, caption: str, meaning: str, kind: str = "") -> str:
    """Returns a figure as an image inside the page, with a caption and an alternative text."""
    data = io.BytesIO()
    figure.savefig(data, format="png", transparent=True)
    source = base64.b64encode(data.getvalue()).decode("ascii")
    width, height = (round(side * figure.dpi) for side in figure.get_size_inches())
    return (
        f'<figure class="{kind}"><img alt="{escape(meaning)}" width="{width}" height="{height}" '
        f'src="data:image/png;base64,{source}"><figcaption>{escape(caption)}</figcaption></figure>'
    )


def _marked(table: np.ndarray) -> str:
    """Returns the caption's note on values that are not finite; empty without such values."""
    return "; green: infinite or not a number" if not np.isfinite(plots.shrunk(table)).all() else ""


def _size(table: np.ndarray) -> str:
    return f"{table.shape[0]} × {table.shape[1]}"
