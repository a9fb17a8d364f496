"""`workbench parity` with several inputs: one verdict on each candidate, and a table of all stages."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from workbench.audio.check import check_sound
from workbench.cli.columns import aligned
from workbench.cli.parity import parity_options
from workbench.cli.transcribe import ProgressLine
from workbench.core.errors import BadInput
from workbench.core.sides import existing_path, runtime_of
from workbench.families import FAMILIES
from workbench.parity_lab.inputs import is_several, read_inputs
from workbench.parity_lab.report.several_report import write_several
from workbench.parity_lab.several import CandidateOnInputs, ParityRuns, run_parity_on_inputs
from workbench.registry.cards import Card
from workbench.registry.registry import Registry
from workbench.session.values import CONVERSATION
from workbench.trace.mapping import StageMapping

COLUMNS = ("stage", "error / limit: median", "largest", "farther", "p")


def several_asked(parsed: argparse.Namespace, card: Card) -> bool:
    """Returns whether the command has several inputs.

    Raises `BadInput` for a model or an option that takes one input only, and for a side among the inputs.
    """
    family = FAMILIES[card.family]
    if not is_several(parsed.inputs, family.reads_text or family.input == CONVERSATION):
        return False
    for each in () if family.reads_text else parsed.inputs:
        if runtime_of(each) and existing_path(each) is None:
            sides = ",".join([*parsed.candidates, each])
            raise BadInput(
                f"{each} is a side to compare and not an input; separate candidates by commas: --candidates {sides}"
            )
    if family.input == CONVERSATION:
        raise BadInput(f"{card.id} answers conversations; expected one input, and --audio for a recording")
    for flag in ("baseline", "junit", "summary", "embedding", "audio", "messages"):
        if getattr(parsed, flag, None):
            raise BadInput(f"--{flag} is for one input; leave it out, or give one input")
    return True


def parity_on_inputs(
    parsed: argparse.Namespace, registry: Registry, mapping: StageMapping | None, progress: ProgressLine
) -> ParityRuns:
    """Runs the comparison on all inputs, and writes the report if the user wants one."""
    card = registry.card(parsed.model)
    reads_text = FAMILIES[card.family].reads_text
    inputs = read_inputs(parsed.inputs, reads_text)
    for each in () if reads_text else inputs:
        check_sound(each.source)  # before a model is loaded
    try:
        runs = run_parity_on_inputs(
            registry,
            parsed.model,
            inputs,
            parsed.reference,
            parsed.candidates,
            parity_options(parsed, mapping),
            on_progress=progress.fetching,
            keep=parsed.keep,
        )
    finally:
        progress.clear()
    if parsed.report:
        write_several(runs, parsed.report)
    return runs


def lines(runs: ParityRuns, as_json: bool = False) -> Iterator[str]:
    """Yields the verdict on each candidate, then for each a table with a row for each stage; or JSON.

    `!` marks the stages in error over all inputs.
    """
    if as_json:
        yield runs.to_json()
        return
    for each in runs.candidates:
        yield f"{each.name} ({each.status}): {each.sentence}"
    for each in runs.candidates:
        if each.no_weights:
            yield f"the weights of {each.name} are not compared with the checkpoint's: {each.no_weights}"
    for each in runs.candidates:
        if each.consistency:
            yield ""
            yield f"{each.name} over {len(runs.inputs)} inputs"
            yield from _table(each)


def _table(each: CandidateOnInputs) -> Iterator[str]:
    assert each.consistency
    rows = [
        (
            f"{'!' if one.is_fault else ' '} {one.stage} {one.measure}",
            f"{one.ratios[2]:.2g}",
            f"{one.ratios[4]:.2g}",
            f"{one.farther} of {one.inputs}",
            f"{one.corrected:.1g}",
        )
        for one in each.consistency.stages
    ]
    yield from aligned([COLUMNS, *rows])
