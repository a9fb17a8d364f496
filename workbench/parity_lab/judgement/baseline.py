"""Finds what got worse since an earlier parity run; the JSON of that run is the baseline.

An unfinished port is beyond tolerance in known places. Its continuous integration should then fail only for a change
that makes something worse. This file compares the JSON of two runs and reads no traces.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.compare.presets import WORSE_FACTOR
from workbench.compare.verdict import MEASURE_NAMES
from workbench.core.errors import BadInput
from workbench.formats.text_files import read_text
from workbench.parity_lab.outcome import FORMAT

_RANK = {"within": 0, "beyond": 1, "unusable": 2, "unavailable": 2}
_SQUARED = ("cosine_distance", "kl")  # measures that grow with the square of an error
_EQUAL_KEYS = {"model": "the model", "source": "the input", "isolated": "isolated"}


@dataclass(frozen=True)
class Regression:
    """One change for the worse."""

    candidate: str
    stage: str  # empty if it concerns the whole candidate
    sentence: str


def read_baseline(path: str | Path) -> dict[str, Any]:
    """Returns the JSON of an earlier run, as `workbench parity --json` prints it.

    Raises `BadInput` for a file that cannot be read, or that holds something else.
    """
    try:
        text = read_text(Path(path))
    except BadInput as error:
        raise BadInput(f"the baseline {path} cannot be read: {error}") from error
    try:
        run = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the baseline {path} is not JSON ({error}); expected the output of parity --json") from error
    if not _is_run(run):
        raise BadInput(f"the baseline {path} is not the JSON of a parity run; expected the output of parity --json")
    if run["format"] != FORMAT:
        raise BadInput(f"the baseline {path} has format {run['format']!r:.20}; expected {FORMAT}: write it again")
    return dict(run)


def regressions(
    baseline: Mapping[str, Any], run: Mapping[str, Any], factor: float = WORSE_FACTOR
) -> tuple[Regression, ...]:
    """Returns what got worse from one run to the next; both are `ParityRun.to_dict`.

    These count as worse: a candidate that cannot be compared any more, a stage that is gone, a stage newly beyond
    tolerance, a stage newly in error by float64, and a measure beyond its limit that is more than `factor` times as
    large as before. For a candidate without an earlier outcome, only its tolerance counts.

    Raises `BadInput` if the runs are of different models, inputs or references.
    """
    for key, name in _EQUAL_KEYS.items():
        if baseline[key] != run[key]:
            raise BadInput(f"{name} of the baseline is {baseline[key]!r:.80} and of this run {run[key]!r:.80}")
    baseline_reference, run_reference = (each["reference"]["name"] for each in (baseline, run))
    if baseline_reference != run_reference:
        raise BadInput(
            f"the reference of the baseline is {baseline_reference!r:.80} and of this run {run_reference!r:.80}"
        )
    earlier = {each["name"]: each for each in baseline["candidates"]}
    return tuple(
        regression for each in run["candidates"] for regression in _candidate(earlier.get(each["name"]), each, factor)
    )


def _candidate(baseline: Mapping[str, Any] | None, current: Mapping[str, Any], factor: float) -> Iterator[Regression]:
    name, status = current["name"], current["status"]
    if baseline is None or baseline.get("comparison") is None:
        if status != "within" and (baseline is None or _RANK[status] < _RANK[baseline["status"]]):
            earlier = (
                "which the baseline lacks" if baseline is None else f"which was {baseline['status']} in the baseline"
            )
            yield Regression(name, "", f"{name}, {earlier}, is {status}: {current['sentence']}")
        return
    if current.get("comparison") is None:
        yield Regression(name, "", f"{name} is {status} now: {current['sentence']}")
        return
    stages_before = {each["stage"]: each for each in baseline["comparison"]["stages"]}
    stages = {each["stage"]: each for each in current["comparison"]["stages"]}
    for stage in stages_before:
        if stage not in stages:
            yield Regression(name, stage, f"{stage}, which the baseline has, is gone")
    bugs_before, bugs_now = _bugs(baseline["comparison"]), _bugs(current["comparison"])
    for stage, each in stages.items():
        if change := _stage(stages_before.get(stage), each, stage in bugs_now - bugs_before, factor):
            yield Regression(name, stage, f"{stage} {change}")


def _stage(baseline: Mapping[str, Any] | None, current: Mapping[str, Any], new_bug: bool, factor: float) -> str:
    """Returns the predicate of a sentence that says how a stage got worse; empty if it did not."""
    if not current["within"]:
        if current["mismatch"] and not (baseline and baseline["mismatch"]):
            return f"cannot be measured now: {current['mismatch']}"
        if baseline is None:
            return f"is new and beyond tolerance: {_measures(current['beyond'])}"
        if baseline["within"]:
            return f"is beyond tolerance now: {_measures(current['beyond']) or 'values that are not finite'}"
        for each in current["beyond"]:
            earlier_value = _measured(baseline, each["measure"])
            if earlier_value is None or not _allowed(each, earlier_value, factor):
                earlier = "was within its limit" if earlier_value is None else f"was {earlier_value:.2g}"
                return f"is farther off: {_measures([each])}, and {earlier}"
    if new_bug:
        return "is in error now: it is farther from float64 than noise, and was not"
    return ""


def _allowed(violation: Mapping[str, Any], earlier_value: float, factor: float) -> bool:
    """Returns whether a measure beyond its limit has not grown by more than the factor."""
    value = math.inf if violation["value"] is None else float(violation["value"])
    if violation["measure"] == "top1":  # a measure of agreement: the share that disagrees must not grow
        return 1 - value <= factor * (1 - earlier_value)
    return value <= factor ** (2 if violation["measure"] in _SQUARED else 1) * earlier_value


def _measured(stage: Mapping[str, Any], measure: str) -> float | None:
    """Returns the value of a measure that was beyond its limit; None if it was within."""
    violation = next((each for each in stage["beyond"] if each["measure"] == measure), None)
    return None if violation is None else math.inf if violation["value"] is None else float(violation["value"])


def _measures(violations: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{MEASURE_NAMES.get(each['measure'], each['measure'])} {_number(each['value'])}, limit "
        f"{_number(each['limit'])}"
        for each in violations[:2]
    )


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.2g}"


def _bugs(comparison: Mapping[str, Any]) -> set[str]:
    """Returns the stages that float64 finds in error; empty without float64."""
    noise = comparison.get("noise") or {}
    return {each["stage"] for each in noise.get("stages", ()) if each.get("is_bug")}


def _is_run(value: Any) -> bool:
    """Returns whether a JSON value has the parts of a run that this file reads."""
    if not isinstance(value, dict) or "format" not in value or not _EQUAL_KEYS.keys() <= value.keys():
        return False
    reference, candidates = value.get("reference"), value.get("candidates")
    return (
        isinstance(reference, dict)
        and isinstance(reference.get("name"), str)
        and isinstance(candidates, list)
        and all(_is_candidate(each) for each in candidates)
    )


def _is_candidate(value: Any) -> bool:
    if not isinstance(value, dict) or not all(isinstance(value.get(key), str) for key in ("name", "status")):
        return False
    if value["status"] not in _RANK:
        return False
    comparison = value.get("comparison")
    if comparison is None:
        return True
    if not isinstance(comparison, dict) or not isinstance(comparison.get("noise"), dict | None):
        return False
    stages, judged = comparison.get("stages"), (comparison.get("noise") or {}).get("stages", [])
    named = isinstance(judged, list) and all(
        isinstance(each, dict) and isinstance(each.get("stage"), str) for each in judged
    )
    return named and isinstance(stages, list) and all(_is_stage(each) for each in stages)


def _is_stage(value: Any) -> bool:
    if not isinstance(value, dict) or not {"stage", "within", "beyond", "mismatch"} <= value.keys():
        return False
    return (
        isinstance(value["stage"], str) and isinstance(value["beyond"], list) and all(map(_is_excess, value["beyond"]))
    )


def _is_excess(value: Any) -> bool:
    """Returns whether this is a measure beyond its limit; the value is null where it is not finite."""
    return (
        isinstance(value, dict)
        and {"measure", "limit"} <= value.keys()
        and isinstance(value.get("value", ""), int | float | None)
    )
