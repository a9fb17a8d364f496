"""A comparison as plain JSON values, and as a table for a terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from workbench.parity.compare import Comparison
from workbench.parity.measures import Measures
from workbench.parity.noise import NoiseReport
from workbench.parity.stage import StageComparison
from workbench.parity.verdict import Verdict
from workbench.writing import display_width

FORMAT = 1  # of the JSON; goes up when a key changes its meaning


def to_dict(
    comparison: Comparison, verdict: Verdict, noise: NoiseReport | None = None, profiles: bool = False
) -> dict[str, Any]:
    """The comparison as plain JSON values. What is infinite or not a number is None.

    Args:
        profiles: with the error of each stage over positions and over channels.
    """
    found = {
        "format": FORMAT,
        "verdict": asdict(verdict),
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
        "stages": [_stage(comparison, each, profiles) for each in comparison.stages],
        "noise": _noise(noise) if noise else None,
    }
    return _plain(found)


def to_json(comparison: Comparison, verdict: Verdict, noise: NoiseReport | None = None, profiles: bool = False) -> str:
    """`to_dict` as indented JSON; text stays readable (no ASCII escapes)."""
    found = to_dict(comparison, verdict, noise, profiles)
    return json.dumps(found, indent=None if profiles else 1, ensure_ascii=False, allow_nan=False)


def _stage(comparison: Comparison, each: StageComparison, profiles: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "stage": each.stage,
        "kind": each.kind,
        "within": comparison.passes(each),
        "shapes": {"reference": list(each.shapes[0]), "candidate": list(each.shapes[1])},
        "dtypes": {"reference": each.dtypes[0], "candidate": each.dtypes[1]},
        "beyond": [asdict(one) for one in each.beyond],
        "limits": asdict(each.limits),
        "passing_preset": each.passing_preset,
        "passing_limits": each.passing_limits,
        "own": each.own,
        "growth": each.growth,
        "mismatch": each.mismatch,
        "hint": each.hint,
    }
    if each.numbers:
        found["numbers"] = _numbers(each.numbers, profiles)
    if each.logits:
        found["logits"] = asdict(each.logits)
    if each.sequence:
        found["sequence"] = asdict(each.sequence)
    return found


def _numbers(numbers: Measures, profiles: bool) -> dict[str, Any]:
    held = vars(numbers)
    found = {name: value for name, value in held.items() if name not in ("by_position", "by_channel", "worst")}
    found["cosine"] = numbers.cosine
    found["worst"] = asdict(numbers.worst) if numbers.worst else None
    for name in ("by_position", "by_channel"):
        errors: np.ndarray = held[name]
        # A position or channel that stands out is worth a look even where the whole is not asked for.
        found[f"worst_{name.removeprefix('by_')}"] = int(errors.argmax()) if errors.size and errors.max() > 0 else None
        if profiles:
            found[f"error_{name}"] = [float(f"{error:.5g}") for error in errors]
    return found


def _noise(noise: NoiseReport) -> dict[str, Any]:
    stages = [
        {**asdict(each), "is_bug": each.is_bug, "reference_is_off": each.reference_is_off} for each in noise.stages
    ]
    first = noise.first_bug
    return {"sentence": noise.sentence, "first_bug": first.stage if first else None, "stages": stages}


def _plain(value: Any) -> Any:
    """Nested values with what JSON has no place for made None."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


COLUMNS = ("", "stage", "rel. L2", "SNR dB", "cosine dist.", "max |d|", "mean |d|", "growth", "would pass", "")


def table(comparison: Comparison, verdict: Verdict, noise: NoiseReport | None = None) -> Iterator[str]:
    """The lines of a table with the verdict at its head: a row for each stage, `!` before those beyond tolerance."""
    yield verdict.sentence
    changes = "".join(
        f"; {', '.join(f'{name} {limit:g}' for name, limit in limits.items())} for {glob}"
        for glob, limits in comparison.tolerances.rules
        if any(fnmatchcase(each.stage, glob) for each in comparison.stages)
    )
    yield f"Tolerance {comparison.tolerances.preset.name} ({comparison.reason}){changes}."
    yield ""
    lines = rows(comparison, noise)
    columns = lines[0]
    widths = [max(display_width(row[column]) for row in lines) for column in range(len(columns))]
    for line in lines:
        cells = [
            cell + " " * (width - display_width(cell)) if column in (0, 1, len(line) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ]
        yield "  ".join(cells).rstrip()


def rows(comparison: Comparison, noise: NoiseReport | None = None) -> list[tuple[str, ...]]:
    """The cells of the table: names of the columns first, then a row for each stage."""
    distances = {each.stage: each for each in noise.stages} if noise else {}
    columns = (*COLUMNS[:-1], "from float64: reference", "candidate", "") if noise else COLUMNS
    found: list[tuple[str, ...]] = [columns]
    for each in comparison.stages:
        row = ["" if comparison.passes(each) else "!", each.stage, *_cells(each), each.passing_preset or "-"]
        if noise:
            far = distances.get(each.stage)
            row += [_short(far.reference), _short(far.candidate)] if far else ["", ""]
        found.append((*row, _remark(each)))
    return found


def _cells(each: StageComparison) -> list[str]:
    if each.numbers is None:
        return ["" for _ in range(6)]
    n = each.numbers
    numbers = [n.relative_l2, n.snr_db, n.cosine_distance, n.max_abs, n.mean_abs]
    cells = [_short(value) for value in numbers]
    cells[1] = "inf" if math.isinf(n.snr_db) and n.snr_db > 0 else f"{n.snr_db:.1f}"
    return [*cells, "" if each.growth is None else f"×{each.growth:.2g}"]


def _remark(each: StageComparison) -> str:
    if each.mismatch:
        return each.mismatch
    parts = []
    if each.sequence:
        found = each.sequence
        if found.first_difference is None:
            return "equal" if each.kind == "text" else f"equal, {found.reference_length} tokens"
        if each.kind == "text":
            unit = found.unit
            parts.append(f"{unit} {100 * found.error_rate:.1f} %")
        else:
            parts.append(
                f"{found.errors} edits, {found.reference_length} and {found.candidate_length} tokens, "
                f"first at {found.first_difference}"
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
