"""Decoding steps in a comparison: which steps of two traces read the same tokens, and the step of the first fault.

A step is comparable if both sides have read the same generated tokens before it. After the first different token, two
sides compute different texts. This file measures no arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from workbench.compare.tokens.discrete import as_tokens
from workbench.core.phrases import as_sentence, enumerated
from workbench.trace.ancestry import Ancestry, ancestry_of_stages, has_beams
from workbench.trace.step_names import beam_of, is_choice, step_and_stage
from workbench.trace.steps import steps_of
from workbench.trace.subset import TraceSubset
from workbench.trace.trace import Trace

PREFIX = "steps."
_NO_HYPOTHESES = (
    "the candidate does not say which hypotheses its steps read (steps.N.beams.parents and .tokens); they are taken to "
    "be the reference's"
)
_NO_PASS = ("tokens", "text", "prompt.", "frontend.")  # beginnings of stages that no pass of the network computes


def step_numbers(stages: Iterable[str]) -> list[int]:
    """Returns the decoding steps that have stages among these, in order."""
    return sorted({step for step, _ in map(step_and_stage, stages) if step is not None})


def last_common_step(reference: Trace, candidate: Trace) -> int | None:
    """Returns the last step before which both sides have read the same tokens; None if they never part.

    Step n has read the first n generated tokens; in a beam search, its hypotheses have. If a trace does not name the
    tokens that its steps followed, its own tokens are assumed, and without tokens those of the other side.
    """
    if not all(any(stage.startswith(PREFIX) for stage in trace) for trace in (reference, candidate)):
        return None
    reference_history, candidate_history = _read_input(reference), _read_input(candidate)
    if isinstance(reference_history, Ancestry) and isinstance(candidate_history, Ancestry):
        last = reference_history.common_steps(candidate_history)
        return last if last < min(reference_history.passes, candidate_history.passes) else None
    if (
        reference_history is None
        or candidate_history is None
        or isinstance(reference_history, Ancestry)
        or isinstance(candidate_history, Ancestry)
    ):
        return None
    common = min(len(reference_history), len(candidate_history))
    differing = np.flatnonzero(reference_history[:common] != candidate_history[:common])
    return int(differing[0]) if len(differing) else None


def _read_input(trace: Trace) -> np.ndarray | Ancestry | None:
    steps = steps_of(trace)
    if steps is not None:
        return np.array(steps.followed, dtype=np.int64) if steps.ancestry is None else steps.ancestry
    if has_beams(trace):
        return ancestry_of_stages(trace)
    return as_tokens("tokens", trace["tokens"]) if "tokens" in trace else None


def with_common_steps(reference: Trace, candidate: Trace) -> tuple[Trace, Trace, str]:
    """Returns both traces without the steps that read different tokens, and a warning about these.

    The choice that made the hypotheses of a beam search differ stays. The warning is empty if there are none; the
    traces are then the same ones.
    """
    last = last_common_step(reference, candidate)
    other_steps = [] if last is None else [step for step in step_numbers(reference) if step > last]
    if last is None or not other_steps:
        is_unnamed = has_beams(reference) and has_beams(candidate) and _read_input(candidate) is None
        return reference, candidate, _NO_HYPOTHESES if is_unnamed else ""

    def is_common(stage: str) -> bool:
        step = step_and_stage(stage)[0] or 0
        return step <= last or (step == last + 1 and is_choice(stage))

    reference_part, candidate_part = (TraceSubset(trace, filter(is_common, trace)) for trace in (reference, candidate))
    beams = has_beams(reference)
    inputs_clause = f"hypotheses from step {last + 1} on" if beams else f"tokens from place {last} on"
    return (
        reference_part,
        candidate_part,
        f"not compared, since the sides read different {inputs_clause}: {ranges(other_steps)}",
    )


def ranges(numbers: Sequence[int]) -> str:
    """Returns steps in words: `step 4`, `steps 1 to 3 and 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    return f"step{'s' * (len(numbers) > 1)} {enumerated(parts)}"


def about_steps(stages: Sequence[str], faulty: Sequence[str]) -> list[str]:
    """Returns the sentences of a verdict about decoding steps.

    Args:
        stages: all compared stages.
        faulty: those in error, in the order of the computation, in which the prompt's pass comes before the steps.
    """
    steps = step_numbers(stages)
    step, stage = step_and_stage(faulty[0]) if faulty else (None, "")
    beam = beam_of(faulty[0]) if faulty else None
    place = f"in {stage}" if beam is None else f"in beam {beam}, {stage}"
    if faulty and is_choice(faulty[0]):
        place = f"in the choice of its hypotheses ({stage})"
    if not steps or (faulty and step is None):
        return []
    steps_within = steps if step is None else [each for each in steps if each < step]
    prompt = any(step_and_stage(each)[0] is None and not each.startswith(_NO_PASS) for each in stages)
    passes = [*(["the prompt's pass"] if prompt else []), *([ranges(steps_within)] if steps_within else [])]
    verb = "are" if prompt + len(steps_within) > 1 else "is"
    sentences = [as_sentence(f"{enumerated(passes)} {verb} within tolerance")] if passes else []
    if step is None:
        return sentences
    return [f"The candidate first differs at step {step}, {place}.", *sentences, *_about_cache(stages, faulty, step)]


def _about_cache(stages: Sequence[str], faulty: Sequence[str], step: int) -> list[str]:
    """Returns a sentence on the last steps that read a right cache, if the first fault is in the cache of `step`.

    A dump may hold the cache after its last step only, so the fault may be later than `step`.
    """
    if not _is_cache(faulty[0]):
        return []
    computed_steps = sorted({number for each in stages if not _is_cache(each) and (number := step_and_stage(each)[0])})
    wrong_steps = [number for each in faulty if not _is_cache(each) and (number := step_and_stage(each)[0])]
    first_wrong = min(wrong_steps, default=None)
    right = [each for each in computed_steps if each >= step and (first_wrong is None or each < first_wrong)]
    if not right:
        return []
    until = "" if first_wrong is None else f", and wrong at step {first_wrong}"
    return [f"The layers of {ranges(right)} are within tolerance, so the cache was right when they read it{until}."]


def _is_cache(stage: str) -> bool:
    return stage.endswith((".cache.key", ".cache.value"))
