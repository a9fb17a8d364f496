"""Chooses the stages of two traces that are compared, and says why others are not.

This file reads names and metadata, and no array but the tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from workbench.compare.inputs import InputSide, side_of_inputs
from workbench.compare.tokens.answers import LOGPROBS as CHOICES
from workbench.compare.tokens.answers import ROWS
from workbench.compare.tokens.choices import has_alternatives, setting_changes
from workbench.compare.tokens.logprobs import IDS, reported_tokens
from workbench.compare.tokens.logprobs import STAGE as LOGPROBS
from workbench.compare.tokens.steps import with_common_steps
from workbench.core.errors import BadInput
from workbench.core.phrases import counted
from workbench.trace.cuts import cut_like, cuts_of
from workbench.trace.order import computation_order, is_aside, layer_counts
from workbench.trace.trace import StageFilter, Trace

_MODEL_OUTPUTS = ("tokens", "tokens.logprobs", "text", ROWS)  # results of the whole model, not of one stage

_LOST_ORDER = (
    "the stages come in the order of their names, since neither the names nor the reference's file tells the order of "
    "the computation: another stage may be the first one that differs (an .npz file keeps the order in which its "
    "arrays were written)"
)


@dataclass(frozen=True)
class Selection:
    """Two traces, and their stages that are compared."""

    reference: Trace  # cut like the candidate, without steps that read other tokens
    candidate: Trace
    stages: list[str]  # in the reference's order
    only_reference: list[str]
    only_candidate: list[str]
    inputs: InputSide | None  # the side whose inputs both sides computed each stage from (see `side_of_inputs`)
    warnings: list[str]


def select(reference: Trace, candidate: Trace, stages: str, force: bool) -> Selection:
    """Returns the stages that both traces have and that the glob matches.

    Raises `BadInput` as `compare` does.
    """
    stage_filter = StageFilter(stages, is_recorded=True)
    warnings = _same_input(reference, candidate, force)
    if reference.has_lost_order:
        warnings.append(_LOST_ORDER)
    inputs = side_of_inputs(reference, candidate)
    reference, candidate, warning = with_common_steps(reference, candidate)
    warnings += [warning] if warning else []
    reference, cuts = cut_like(reference, candidate), cuts_of(candidate)
    if reference.meta.get("isolated") and inputs is None:
        warnings.append("the reference was computed from the stages of another trace, which is not the candidate")
    warnings += _same_layers(list(filter(stage_filter, reference)), list(filter(stage_filter, candidate)), force)
    reference_names, candidate_names = (
        [each for each in trace if stage_filter(each) and not is_aside(each)] for trace in (reference, candidate)
    )
    for stage, reason in _not_comparable(reference, candidate):
        if stage in reference_names and stage in candidate_names:
            warnings.append(f"not compared, since {reason}: {stage}")
            reference_names.remove(stage)
            candidate_names.remove(stage)
    shared_names = set(reference_names) & set(candidate_names)
    common = [stage for stage in reference_names if stage in shared_names]
    if not common:
        raise BadInput(_nothing_common(reference, candidate, stages))
    for pattern in stage_filter.patterns:
        if not any(map(StageFilter(pattern, is_recorded=True), common)):
            raise BadInput(f"no stage that both traces have matches {pattern}; they share {_names(common)}")
    lacking, surplus = (
        [stage for stage in side if stage not in shared_names] for side in (reference_names, candidate_names)
    )
    warnings += _warnings_of_omissions(lacking, surplus, isolated=inputs is not None)
    if changes := setting_changes(reference.meta, candidate.meta):
        warnings.append(f"the answers were made with different settings: {changes}")
    if parts := [f"{stage} ({cuts[stage]})" for stage in common if stage in cuts]:
        warnings.append(f"compared with a part of the reference, as the candidate has no more: {', '.join(parts)}")
    return Selection(reference, candidate, common, lacking, surplus, inputs, warnings)


def _not_comparable(reference: Trace, candidate: Trace) -> list[tuple[str, str]]:
    """Returns stages that cannot be compared although both traces have them, and why."""
    reasons = []
    sides = (("reference", reference), ("candidate", candidate))
    if sides_without_ids := [side for side, trace in sides if reported_tokens(trace) is None]:
        reasons.append((LOGPROBS, f"the {sides_without_ids[0]} does not name the tokens ({IDS})"))
    if not all(map(has_alternatives, (reference, candidate))):
        reasons.append((CHOICES, "a trace does not name the ids (answer.alternatives)"))
    return reasons


def _warnings_of_omissions(lacking: list[str], surplus: list[str], isolated: bool) -> list[str]:
    """Returns warnings about the stages that only one of the traces has."""
    model_outputs = (
        [stage for stage in lacking if stage in _MODEL_OUTPUTS or stage.startswith("answer.")] if isolated else []
    )
    others = [stage for stage in lacking if stage not in model_outputs]
    reasons = (
        (model_outputs, "the whole model writes them, not one stage"),
        (others, "the candidate does not have them"),
        (surplus, "the reference does not have them"),
    )
    warnings = [f"not compared, since {reason}: {_names(names)}" for names, reason in reasons if names]
    stages = {_plain(stage): stage for stage in lacking}
    misspelt = [name for name in computation_order(surplus) if _plain(name) in stages]
    if misspelt:
        count = counted(len(misspelt), "array")
        example = f"{misspelt[0]:.80} for {stages[_plain(misspelt[0])]:.80}"
        warnings.append(
            f"{count} of the candidate may be stages with other signs between the words, such as {example}: rename "
            "them, or name them in a mapping file"
        )
    return warnings


def _plain(name: str) -> str:
    """Returns a name in small letters, with a dot for whatever separates its words."""
    return re.sub("[^a-z0-9]+", ".", name.lower())


def _same_input(reference: Trace, candidate: Trace, force: bool) -> list[str]:
    digests = [trace.meta.get("input_digest") for trace in (reference, candidate)]
    if digests == [None, None]:
        return ["neither trace says what input it was computed on (input_digest)"]
    if None in digests:
        silent_side, other_side = ("reference", "candidate") if digests[0] is None else ("candidate", "reference")
        digest = next(str(each) for each in digests if each is not None)
        return [
            f"the {silent_side} does not say what input it was computed on; if it is the {other_side}'s, "
            f'input_digest = "{digest:.80}" under [meta] of a mapping file says so'
        ]
    if digests[0] == digests[1]:
        return []
    digest_texts = [f"{each!s:.32}" if str(each).isprintable() else f"{each!r:.32}" for each in digests]
    message = f"the traces are of different inputs (digests {digest_texts[0]} and {digest_texts[1]})"
    if not force:
        raise BadInput(f"{message}; expected two traces of one input, or --force to compare them anyway")
    return [message]


def _same_layers(reference: list[str], candidate: list[str], force: bool) -> list[str]:
    counts = layer_counts(reference), layer_counts(candidate)
    for stack in counts[0].keys() & counts[1].keys():
        if counts[0][stack] != counts[1][stack] and not _ends_with(candidate, stack, counts[0][stack]):
            message = f"the reference has {counts[0][stack]} {stack} and the candidate {counts[1][stack]}"
            if not force:
                raise BadInput(
                    f"{message}; expected traces of one model, or --force for a port that writes only some of its "
                    "layers, or --stages to compare only the layers that both have"
                )
            return [message]
    return []


def _ends_with(candidate: list[str], stack: str, layers: int) -> bool:
    """Returns whether a candidate has some of the layers of a stack and nothing behind them, as an unfinished port."""
    last = computation_order([each for each in candidate if not is_aside(each)])[-1]
    number = last.removeprefix(f"{stack}.").partition(".")[0]
    return last.startswith(f"{stack}.") and number.isdecimal() and int(number) < layers


def _nothing_common(reference: Trace, candidate: Trace, stages: str) -> str:
    if shared := set(reference) & set(candidate):
        return f"no stage that both traces have matches {stages}; they share {_names(list(shared))}"
    advice = "a mapping file says which array is which stage"
    if all(_UNNAMED.fullmatch(each) for each in candidate):
        advice += ", or numpy.savez('port.npz', **arrays) keeps the names of a dictionary"
    return (
        f"the traces have no stage in common: the reference has {_names(list(reference))}, the candidate "
        f"{_names(list(candidate))}; {advice}"
    )


_UNNAMED = re.compile("arr_[0-9]+")  # what numpy calls arrays without a name


def _names(stages: list[str], limit: int = 5) -> str:
    """Returns some stages by name, and the number of the others."""
    ordered = computation_order(stages)
    if not ordered:
        return "none"
    suffix = f" and {len(ordered) - limit} more" if len(ordered) > limit else ""
    return ", ".join(f"{stage:.80}" for stage in ordered[:limit]) + suffix
