"""Formats a comparison as plain JSON values, and as a table for a terminal."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from workbench.compare.comparison import Comparison
from workbench.compare.measures import Measures
from workbench.compare.noise.report import NoiseReport
from workbench.compare.stage import StageComparison
from workbench.compare.verdict import Verdict
from workbench.text.scripts import display_width, padded

FORMAT = 1  # version of the JSON; it increases when a key changes its meaning


def to_dict(
    comparison: Comparison, verdict: Verdict, noise: NoiseReport | None = None, profiles: bool = False
) -> dict[str, Any]:
    """Returns the comparison as plain JSON values; infinite and NaN values become None.

    Args:
        profiles: whether to add the error of each stage over positions and over channels.
    """
    values = {
        "format": FORMAT,
        "verdict": {**asdict(verdict), "sentence": verdict.sentence},
        "tolerance": {
            "preset": comparison.tolerances.preset.name,
            "reason": comparison.reason,
            "rules": [{"stages": glob, **changes} for glob, changes in comparison.tolerances.rules],
        },
        "reference": comparison.reference,
        "candidate": comparison.candidate,
        "warnings": list(comparison.warnings),
        "only_in_reference": list(comparison.only_reference),
        "only_in_candidate": list(comparison.only_candidate),
        "first_token": asdict(comparison.first_token) if comparison.first_token else None,
        "first_id": asdict(comparison.first_id) if comparison.first_id else None,
        "stages": [_stage(comparison, each, profiles) for each in comparison.stages],
        "noise": _noise(noise) if noise else None,
    }
    return _json_values(values)


def to_json(comparison: Comparison, verdict: Verdict, noise: NoiseReport | None = None, profiles: bool = False) -> str:
    """Returns `to_dict` as indented JSON with readable text (no ASCII escapes)."""
    values = to_dict(comparison, verdict, noise, profiles)
    text = json.dumps(values, indent=None if profiles else 1, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace").decode("utf-8")  # files may hold unpaired surrogates


def _stage(comparison: Comparison, each: StageComparison, profiles: bool) -> dict[str, Any]:
    values: dict[str, Any] = {
        "stage": each.stage,
        "kind": each.kind,
        "within": comparison.passes(each),
        "shapes": {"reference": list(each.shapes[0]), "candidate": list(each.shapes[1])},
        "dtypes": {"reference": each.dtypes[0], "candidate": each.dtypes[1]},
        "beyond": [asdict(violation) for violation in each.beyond],
        "limits": asdict(each.limits),
        "passing_preset": each.passing_preset,
        "passing_limits": each.passing_limits,
        "own": each.own,
        "growth": each.growth,
        "before": each.before,
        "mismatch": each.mismatch,
        "hint": each.hint,
        "explanation": asdict(each.explanation) if each.explanation else None,
    }
    if each.numbers:
        values["numbers"] = _numbers(each.numbers, profiles)
    if each.logits:
        values["logits"] = asdict(each.logits)
    if each.logprobs:
        values["logprobs"] = asdict(each.logprobs)
    if each.streams:
        values["streams"] = asdict(each.streams)
    if each.sequence:
        values["sequence"] = asdict(each.sequence)
    return values


def _numbers(numbers: Measures, profiles: bool) -> dict[str, Any]:
    fields = vars(numbers)
    values = {name: value for name, value in fields.items() if name not in ("by_position", "by_channel", "worst")}
    values["cosine"] = numbers.cosine
    if _all_nonfinite(numbers):
        values |= dict.fromkeys(_OF_VALUES)
    values["worst"] = asdict(numbers.worst) if numbers.worst else None
    for name in ("by_position", "by_channel"):
        errors: np.ndarray = fields[name]
        # The worst position and channel are useful even without the whole profiles.
        values[f"worst_{name.removeprefix('by_')}"] = int(errors.argmax()) if errors.size and errors.max() > 0 else None
        if profiles:
            values[f"error_{name}"] = [float(f"{error:.5g}") for error in errors]
    return values


_OF_VALUES = (
    "max_abs",
    "mean_abs",
    "relative_l2",
    "snr_db",
    "cosine_distance",
    "cosine",
    "peak",
    "factor",
    "factor_residual",
)


def _all_nonfinite(numbers: Measures) -> bool:
    """Returns whether no value is finite on both sides, so that the measures have no meaning."""
    return not numbers.values and bool(numbers.nonfinite_differences)


def _noise(noise: NoiseReport) -> dict[str, Any]:
    stages = [
        {**asdict(each), "is_bug": each.is_bug, "reference_is_off": each.reference_is_off} for each in noise.stages
    ]
    first = noise.first_bug
    return {
        "sentence": noise.sentence,
        "beside": noise.beside,
        "first_bug": first.stage if first else None,
        "stages": stages,
    }


def _json_values(value: Any) -> Any:
    """Returns nested values in which None replaces what JSON cannot hold."""
    if isinstance(value, dict):
        return {str(key): _json_values(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_values(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


COLUMNS = ("", "stage", "rel. L2", "SNR dB", "cosine dist.", "max |d|", "mean |d|", "growth", "would pass", "")
_OMITTED_FIRST = (
    "mean |d|",
    "max |d|",
    "cosine dist.",
    "growth",
    "SNR dB",
)  # columns left out first on a narrow screen
_REMARK_INDENT = " " * 5  # indent of a remark below its row


def table(
    comparison: Comparison, verdict: Verdict, noise: NoiseReport | None = None, width: int | None = None
) -> Iterator[str]:
    """Yields the lines of a table: the verdict, then a row for each stage, with `!` before those beyond tolerance.

    Args:
        width: columns of the screen, if known. Longer lines are wrapped, remarks without space move below their rows,
            and columns without space are left out.
    """
    for each in verdict.sentences:
        yield from _wrapped(each, width)
    changes = "".join(
        f"; {', '.join(f'{name} {limit:g}' for name, limit in limits.items())} for {glob}"
        for glob, limits in comparison.tolerances.rules
        if any(fnmatchcase(each.stage, glob) for each in comparison.stages)
    )
    yield from _wrapped(f"{comparison.about_tolerance}{changes}.", width)
    yield ""
    lines = _narrowed(rows(comparison, noise), width)
    widths = _widths(lines)
    for line in lines:
        cells = [
            padded(cell, cell_width) if column < 2 else cell.rjust(cell_width)
            for column, (cell, cell_width) in enumerate(zip(line[:-1], widths))
        ]
        row, remark = "  ".join(cells).rstrip(), line[-1]
        full_line = f"{'  '.join(cells)}  {remark}".rstrip()
        if width is None or display_width(full_line) <= width:
            yield full_line
        else:
            yield row
            yield from _wrapped(remark, width, _REMARK_INDENT)


def _widths(lines: list[tuple[str, ...]]) -> list[int]:
    """Returns the widths of all columns except the remarks."""
    return [max(display_width(row[column]) for row in lines) for column in range(len(lines[0]) - 1)]


def _narrowed(lines: list[tuple[str, ...]], width: int | None) -> list[tuple[str, ...]]:
    """Returns the rows without the columns that do not fit."""
    for name in _OMITTED_FIRST:
        widths = _widths(lines)
        if width is None or sum(widths) + 2 * (len(widths) - 1) <= width:
            break
        place = lines[0].index(name)
        lines = [line[:place] + line[place + 1 :] for line in lines]
    return lines


def _wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    if width is None:
        return [indent + text]
    return textwrap.wrap(
        text,
        max(width, 20),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def rows(comparison: Comparison, noise: NoiseReport | None = None) -> list[tuple[str, ...]]:
    """Returns the cells of the table: names of the columns first, then a row for each stage."""
    distances = {each.stage: each for each in noise.stages} if noise else {}
    columns = (
        (*COLUMNS[:-1], f"from float64: {noise.beside.removeprefix('the ')}", "candidate", "") if noise else COLUMNS
    )
    table_rows: list[tuple[str, ...]] = [columns]
    for each in comparison.stages:
        row = ["" if comparison.passes(each) else "!", each.stage, *_cells(each), each.passing_preset or "-"]
        if noise:
            stage_noise = distances.get(each.stage)
            row += [_short(stage_noise.reference), _short(stage_noise.candidate)] if stage_noise else ["", ""]
        table_rows.append((*row, _remark(each)))
    return table_rows


def _cells(each: StageComparison) -> list[str]:
    if each.numbers is None:
        return ["" for _ in range(6)]
    n = each.numbers
    if _all_nonfinite(n):
        return ["" for _ in range(6)]
    numbers = [n.relative_l2, n.snr_db, n.cosine_distance, n.max_abs, n.mean_abs]
    cells = [_short(value) for value in numbers]
    cells[1] = "inf" if math.isinf(n.snr_db) and n.snr_db > 0 else f"{n.snr_db:.1f}"
    return [*cells, "" if each.growth is None else f"×{each.growth:.2g}"]


def _remark(each: StageComparison) -> str:
    if each.mismatch:
        return each.mismatch
    parts = []
    if each.sequence:
        sequence = each.sequence
        if sequence.first_difference is None:
            return "equal" if each.kind == "text" else f"equal, {sequence.reference_length} tokens"
        if each.kind == "text":
            unit = sequence.unit
            parts.append(f"{unit} {100 * sequence.error_rate:.1f} %")
        else:
            parts.append(
                f"{sequence.errors} edits, {sequence.reference_length} and {sequence.candidate_length} tokens, "
                f"first at {sequence.first_difference}"
            )
    if streams := each.streams:
        if not streams.errors:
            return f"equal, {streams.reference_rows} rows of {streams.streams} streams"
        parts.append(
            f"{streams.errors} ids differ, {streams.reference_rows} and {streams.candidate_rows} rows, first row "
            f"{streams.row}, stream {streams.stream}"
        )
    if logprobs := each.logprobs:
        stream = "" if logprobs.worst_stream is None else f", stream {logprobs.worst_stream}"
        parts.append(
            f"{logprobs.steps} steps, at most {logprobs.worst:.2g} nats apart"
            + (f", step {logprobs.worst_step}{stream}" if logprobs.worst else "")
        )
    if each.numbers and (each.numbers.reference_nonfinite or each.numbers.candidate_nonfinite):
        parts.append(
            f"not finite: {each.numbers.reference_nonfinite} in the reference, "
            f"{each.numbers.candidate_nonfinite} in the candidate"
        )
    if each.logits:
        parts.append(f"KL {each.logits.kl_mean:.2g}, top-1 {100 * each.logits.top1_agreement:.4g} %")
        parts.append(f"top-{each.logits.top} overlap {100 * each.logits.top_overlap:.4g} %")
    if not each.passes and each.numbers and each.numbers.worst:
        worst = each.numbers.worst
        parts.append(f"worst at {list(worst.index)}: {worst.reference:.4g}, {worst.candidate:.4g}")
    if each.hint:
        parts.append(each.hint)
    return "; ".join(parts)


def _short(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}" if math.isfinite(value) else "inf"
