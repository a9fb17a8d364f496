"""`workbench parity`: its options, a verdict for each candidate, and a table with the error of every stage."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from workbench.cli.arguments.models import chosen_options, chosen_settings
from workbench.cli.columns import aligned
from workbench.compare.stage import StageComparison
from workbench.compare.tokens.steps import step_numbers
from workbench.parity_lab import ParityOptions, write_page
from workbench.parity_lab.judgement.baseline import Regression
from workbench.parity_lab.judgement.narrow import layer_in_error
from workbench.parity_lab.outcome import Outcome, ParityRun
from workbench.parity_lab.report.junit import write_junit
from workbench.parity_lab.report.summary import write_summary
from workbench.trace.mapping import StageMapping
from workbench.trace.order import computation_order
from workbench.trace.step_names import step_and_stage

MAX_STEPS = 3  # decoding steps whose stages all have a row in the table


def lines(run: ParityRun, worse: Sequence[Regression] | None = None, as_json: bool = False) -> Iterator[str]:
    """Yields what got worse, then the verdicts, then a table of relative L2 errors with a row for each stage; or JSON.

    `!` marks the stages beyond tolerance. With many decoding steps, each step has one row, with its worst stage.

    Args:
        worse: what got worse since a baseline; None without a baseline.
    """
    if as_json:
        found = run.to_dict() if worse is None else {**run.to_dict(), "worse": [asdict(each) for each in worse]}
        yield json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
        return
    if worse is not None:
        yield f"{len(worse) or 'nothing'} worse than the baseline"
        yield from (f"{each.candidate} got worse: {each.sentence}" for each in worse)
    for each in run.outcomes:
        outcome, *more = each.sentences
        yield f"{each.name} ({each.status}): {outcome}"
        yield from (f"  {sentence}" for sentence in more)
    if run.isolated:
        yield run.mode
    if run.no_exact:
        yield f"Noise and bugs are not distinguished: {run.no_exact}"
    for each in run.outcomes:
        if each.precision:
            yield f"{each.name} is {each.precision}"
        if each.no_peer:
            yield f"{each.name} is not compared with this model in the same precision: {each.no_peer}"
        if each.no_weights:
            yield f"the weights of {each.name} are not compared with the checkpoint's: {each.no_weights}"
    compared = [(each.name, each.comparison) for each in run.outcomes if each.comparison]
    if not compared:
        return
    by_stage = [{each.stage: each for each in comparison.stages} for _, comparison in compared]
    order = computation_order(list(run.reference.trace), recorded=run.reference.trace.is_ordered)
    rows = [("relative L2", *(name for name, _ in compared))]
    if len(step_numbers(order)) > MAX_STEPS:
        by_stage = [_worst_of_steps(stages) for stages in by_stage]
        order = list(dict.fromkeys(map(_step_alone, order)))
    for stage in order:
        if any(stage in stages for stages in by_stage):
            cells = [_cell(stages.get(stage)) for stages in by_stage]
            marks = [
                "!" if stage in stages and not one.passes(stages[stage]) else " "
                for stages, (_, one) in zip(by_stage, compared)
            ]
            rows.append((stage, *(f"{cell} {mark}" for cell, mark in zip(cells, marks))))
    yield ""
    yield from aligned(rows)


def _step_alone(stage: str) -> str:
    step, _ = step_and_stage(stage)
    return stage if step is None else f"steps.{step}"


def _worst_of_steps(stages: dict[str, StageComparison]) -> dict[str, StageComparison]:
    """Returns the stages by name; for a decoding step only its worst stage, by the name of the step."""
    found: dict[str, StageComparison] = {}
    for stage, each in stages.items():
        name = _step_alone(stage)
        if name not in found or _badness(each) > _badness(found[name]):
            found[name] = each
    return found


def _badness(each: StageComparison) -> tuple[bool, float]:
    return not each.passes, each.numbers.relative_l2 if each.numbers else 0.0


def narrow_advice(outcome: Outcome) -> list[str]:
    """Returns the advice to look inside the first layer in error, if nothing explains it yet."""
    verdict, comparison = outcome.verdict, outcome.comparison
    layer = layer_in_error(outcome)
    if layer is None or verdict is None or comparison is None or verdict.explanation or verdict.faulty_stage is None:
        return []
    if comparison[verdict.faulty_stage].mismatch:
        return []
    return [f"--narrow also compares what is inside {layer}, and may find the cause there"]


def parity_options(parsed: argparse.Namespace, mapping: StageMapping | None) -> ParityOptions:
    """Returns the options of the comparison, for one input or several."""
    return ParityOptions(
        stages=parsed.stages,
        steps=parsed.steps,
        options=chosen_options(parsed),
        settings=chosen_settings(parsed),
        exact=parsed.float64,
        same_precision=parsed.same_precision,
        isolated=parsed.isolated,
        narrow=parsed.narrow,
        preset=parsed.preset,
        rules=parsed.tolerance,
        mapping=mapping,
        force=parsed.force,
        precision=parsed.precision,
    )


def write_files(
    run: ParityRun, worse: Sequence[Regression] | None, report: Path | None, junit: Path | None, summary: Path | None
) -> None:
    """Writes the files that the user asks for; raises `BadInput` if one cannot be written."""
    if report:
        write_page(run, report)
    if junit:
        write_junit(run, junit, worse)
    if summary:
        write_summary(run, summary, worse)


def _cell(each: StageComparison | None) -> str:
    if each is None:
        return "-"
    if each.mismatch:
        return "other shape"
    if each.sequence:
        return "equal" if not each.differs else f"{each.sequence.errors} of {each.sequence.reference_length} differ"
    if each.streams:
        return "equal" if not each.differs else f"{100 * each.streams.error_rate:.2g} % differ"
    if each.logprobs:
        return f"{each.logprobs.worst:.1e} nats" if each.logprobs.worst else "0"
    assert each.numbers
    if each.numbers.nonfinite_differences:
        return "not finite"
    return f"{each.numbers.relative_l2:.1e}" if each.numbers.relative_l2 else "0"
