"""Compares how two sides chose the ids of an answer: their likeliest ids, and the settings that the draws used.

Only positions that follow the same ids are compared (`workbench.compare.tokens.answers`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from workbench.compare.tokens.answers import ALTERNATIVES, LOGPROBS, TEMPERATURES, Answers, Ids, layout_of
from workbench.compare.tokens.logprobs import LogprobMeasures, differences, root_mean_square
from workbench.core.errors import BadInput
from workbench.speech.layout import SpeechLayout
from workbench.trace.trace import Trace

_OFFSET_SPREAD = 0.02  # differences at one position that vary by less than this share of their mean are a constant
_SAME_TEMPERATURE = 1e-3  # two temperatures with a smaller relative difference are the same setting

StreamLogprobs = list[dict[int, float]]
"""For each stream, the log-probabilities of its likeliest ids."""


def has_alternatives(trace: Trace) -> bool:
    """Returns whether a trace holds the likeliest ids of each position with their log-probabilities.

    Raises `BadInput` if the two do not fit together.
    """
    if LOGPROBS not in trace or ALTERNATIVES not in trace:
        return False
    ids, logprobs = trace[ALTERNATIVES], trace[LOGPROBS]
    if ids.ndim != 3 or ids.dtype.kind not in "iu" or logprobs.shape != ids.shape or logprobs.dtype.kind != "f":
        raise BadInput(
            f"{ALTERNATIVES} holds {ids.dtype} of shape {ids.shape} and {LOGPROBS} {logprobs.dtype} of shape "
            f"{logprobs.shape}; expected whole numbers and floating point of one shape (positions, streams, likeliest)"
        )
    return True


def measure_choices(reference: Trace, candidate: Trace, positions: int, limit: float) -> LogprobMeasures:
    """Returns the measures of the log-probabilities of two answers.

    Args:
        positions: the number of comparable positions.
        limit: the largest root mean square that one stream may have at one position; the first place beyond it is
            named.
    """
    sides = _arrays(reference), _arrays(candidate)
    steps = min(positions, *(len(ids) for ids, _ in sides))
    worst, worst_position, first_beyond = 0.0, (-1, 0), None
    total, tokens = 0.0, 0
    for step in range(steps):
        for stream, (reference_logprobs, candidate_logprobs) in enumerate(
            zip(*(_logprobs_at(*side, step) for side in sides))
        ):
            if not reference_logprobs and not candidate_logprobs:
                continue
            step_differences = (
                differences(reference_logprobs, candidate_logprobs)
                if reference_logprobs and candidate_logprobs
                else [math.inf]
            )
            rms = root_mean_square(step_differences)
            if worst_position[0] < 0 or rms > worst:
                worst, worst_position = rms, (step, stream)
            if first_beyond is None and not rms <= limit:
                first_beyond = step, stream
            total += sum(step_differences)
            tokens += len(step_differences)
    first = first_beyond or (None, None)
    return LogprobMeasures(worst, worst_position[0], total / max(tokens, 1), steps, tokens, worst_position[1], *first)


def explain_choices(
    reference: Trace, candidate: Trace, measured: LogprobMeasures, answers: Answers, passes_agree: bool
) -> str | None:
    """Returns what may have happened at the first position beyond the limit.

    Args:
        passes_agree: whether one pass over the same ids gives both sides the same states.
    """
    step, stream = measured.first_step, measured.first_stream
    if step is None or stream is None:
        return None
    reference_logprobs, candidate_logprobs = (
        _logprobs_at(*_arrays(trace), step)[stream] for trace in (reference, candidate)
    )
    position_clause = f"first at {_position_text(answers.reference, step, stream)}"
    layout = layout_of(reference.meta) or layout_of(candidate.meta)
    if not reference_logprobs or not candidate_logprobs:
        return f"{position_clause}, where {'the candidate' if reference_logprobs else 'the reference'} chooses nothing"
    if foreign_ids := _foreign_ids(reference_logprobs, candidate_logprobs, stream, layout):
        return f"{position_clause}, where the candidate chooses among {foreign_ids}"
    if (offset := _common_offset(reference_logprobs, candidate_logprobs)) is not None:
        return (
            f"{position_clause}, where they are all {abs(offset):.2g} {'lower' if offset > 0 else 'higher'}, as if "
            f"{'more' if offset > 0 else 'fewer'} ids were allowed: another mask"
        )
    if passes_agree:
        return (
            f"{position_clause}; one pass over the same ids agrees, so generation itself is different: the rows that "
            "it feeds back, its keys and values, or guidance"
        )
    return position_clause


def explain_temperatures(reference: Trace, candidate: Trace, positions: int, answers: Answers) -> str | None:
    """Returns the first position that was drawn at another temperature, and whose temperature it is."""
    reference_temperatures, candidate_temperatures = (
        trace[TEMPERATURES][:positions] for trace in (reference, candidate)
    )
    streams = min(reference_temperatures.shape[1], candidate_temperatures.shape[1])
    common = min(len(reference_temperatures), len(candidate_temperatures))
    differing = ~np.isclose(
        reference_temperatures[:common, :streams],
        candidate_temperatures[:common, :streams],
        rtol=_SAME_TEMPERATURE,
        atol=0,
        equal_nan=True,
    )
    if not differing.any():
        return None
    step, stream = map(int, np.argwhere(differing)[0])
    temperature, reference_temperature = (
        float(candidate_temperatures[step, stream]),
        float(reference_temperatures[step, stream]),
    )
    sentence = (
        f"first at {_position_text(answers.reference, step, stream)}: it was drawn at temperature {temperature:.4g}, "
        f"the reference's at {reference_temperature:.4g}"
    )
    settings = reference.meta.get("answer")
    for kind in ("text", "audio") if isinstance(settings, Mapping) else ():
        setting = settings.get(f"{kind}_temperature") if isinstance(settings, Mapping) else None
        if isinstance(setting, (int, float)) and math.isclose(setting, temperature, rel_tol=_SAME_TEMPERATURE):
            return f"{sentence}; {temperature:.4g} is the temperature of {kind}"
    return sentence


def setting_changes(reference: Mapping[str, object], candidate: Mapping[str, object]) -> str:
    """Returns the settings in which two answers differ, as text; empty if there are none or a trace names none."""
    reference_settings, candidate_settings = reference.get("answer"), candidate.get("answer")
    if not isinstance(reference_settings, Mapping) or not isinstance(candidate_settings, Mapping):
        return ""
    names = [
        name
        for name in reference_settings
        if name in candidate_settings
        and name != "probabilities"
        and reference_settings[name] != candidate_settings[name]
    ]
    return ", ".join(
        f"{name!s:.40} {reference_settings[name]!s:.40} and {candidate_settings[name]!s:.40}" for name in names
    )


def _position_text(ids: Ids, step: int, stream: int) -> str:
    row = ids.row(step)
    return f"position {step}" if row is None else f"row {row} of the audio, stream {stream}"


def _arrays(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    return trace[ALTERNATIVES], trace[LOGPROBS]


def _logprobs_at(ids: np.ndarray, logprobs: np.ndarray, step: int) -> StreamLogprobs:
    return [
        {number: value for number, value in zip(row.tolist(), values.tolist()) if number >= 0}
        for row, values in zip(ids[step], logprobs[step])
    ]


def _foreign_ids(
    reference_logprobs: Mapping[int, float],
    candidate_logprobs: Mapping[int, float],
    stream: int,
    layout: SpeechLayout | None,
) -> str | None:
    """Returns in words which foreign ids a stream of audio chooses among; None if it chooses among its own ids."""
    if layout is None or stream >= layout.streams:
        return None
    first, end = layout.interval(stream)
    if not all(first <= number < end or number in (layout.eos, layout.eot) for number in reference_logprobs):
        return None  # not in audio
    foreign_ids = [
        number for number in candidate_logprobs if not (first <= number < end or number in (layout.eos, layout.eot))
    ]
    if not foreign_ids:
        return None
    streams_of_ids = {(number - layout.codec_first) // layout.layer_size for number in foreign_ids}
    [stream_of_ids] = streams_of_ids if len(streams_of_ids) == 1 else [None]
    if (
        stream_of_ids is not None
        and 0 <= stream_of_ids < layout.streams
        and len(foreign_ids) == len(candidate_logprobs)
    ):
        return f"the ids of stream {stream_of_ids}: another stream's mask"
    return f"ids that stream {stream} does not have, such as {foreign_ids[0]}: a mask is missing"


def _common_offset(reference_logprobs: Mapping[int, float], candidate_logprobs: Mapping[int, float]) -> float | None:
    """Returns how much lower the candidate's log-probabilities are; None unless all differ by about the same."""
    offsets = np.array(
        [
            reference_logprobs[number] - candidate_logprobs[number]
            for number in reference_logprobs.keys() & candidate_logprobs.keys()
        ]
    )
    if len(offsets) < 2 or len(offsets) < len(reference_logprobs) / 2 or not np.isfinite(offsets).all():
        return None
    mean = float(offsets.mean())
    return mean if float(offsets.std()) <= _OFFSET_SPREAD * abs(mean) else None
