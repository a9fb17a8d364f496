"""Presets of the expected difference for each kind of arithmetic, and rules that change single limits.

All limits are relative to the reference's own size, so stages with values near 1e-3 and stages with values in the
thousands are judged alike. The origin of the numbers:

- The *unit roundoff* u is the relative error of one rounding: 2^-24 in float32, 2^-11 in float16, 2^-8 in bfloat16. In
  blocks of 32 with one scale, the largest value of a normally distributed block is near 2.4 deviations: q8_0 has steps
  of 2.4/127 and an error (step / sqrt(12)) of 0.55 %, q4_0 steps of 2.4/8 and 8.7 %, of each value's deviation.
- A residual network of L blocks adds up their errors as sqrt(L) if they are independent. For the demo models, whose
  stacks have up to 7 blocks, the largest relative L2 of any stage between PyTorch in float32 and ggml is 3e-6 in f32,
  1e-3 in f16, 7e-3 in q8_0 and 5e-2 in q4_0. With sqrt(70 / 7) for the longest networks here and a margin of two to
  three (ten in float32, because orders of sums, exp and sqrt differ between libraries) that gives 1e-4, 1e-2, 4e-2 and
  0.3; bfloat16, with eight times float16's u, has five times its limit.
- `peak` is the largest single difference divided by the root mean square of the reference. Among 1e5 to 1e7 normally
  distributed errors the largest is five deviations; values that are ten times the usual size, which transformers have,
  carry ten times the error: together 50 times the relative L2.
- `cosine_distance` of an error e without direction is e^2 / 2; the limit is e^2, at least 1e-12.
- `kl`, the mean over rows in nats: errors of deviation s in the logits give about s^2 / 2, and logits have a root mean
  square of up to ten: 50 e^2, but never more than 1.
- `logprob`, the root mean square over the reported tokens in the worst step, in nats: such logits have errors of the
  deviation 10 e, and a log-probability, which is a difference of two, of sqrt(2) times that; among thousands of steps
  with ten tokens each, the worst has a root mean square of less than twice the deviation: 25 e.
- Attention weights are exponentials of scores, so an error in a score is a relative error of its weight. Sharp
  attention has scores near 30, whose rounding in bfloat16 makes correct weights of the demo models differ by up to
  0.11. So attention weights have four times the relative L2; the sums of values that they weight have the usual one.
- `top1`: share of rows with the same best candidate; one row may always differ, except under `exact`.
- `token_errors`, `text_errors`: in float arithmetic, tokens change only at near ties, which are excused separately.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from workbench.core.errors import BadInput


@dataclass(frozen=True)
class Limits:
    """The largest allowed difference per measure (for `top1`, the smallest agreement). See the module's docstring."""

    relative_l2: float
    peak: float
    cosine_distance: float
    kl: float
    logprob: float
    top1: float
    token_errors: float
    text_errors: float


MEASURES = tuple(each.name for each in fields(Limits))

_ATTENTION_WEIGHTS = ("*attention.weights", 4.0)  # stages, and how much wider their limits are

WORSE_FACTOR = 1.5  # with a baseline: factor by which an error beyond its limit may grow; machines round differently


@dataclass(frozen=True)
class Preset:
    """The expected difference for one kind of arithmetic."""

    name: str
    title: str
    roundoff: float  # relative error of one rounding
    limits: Limits

    def for_stage(self, stage: str) -> Limits:
        """Returns the limits of a stage: `limits`, or wider ones for attention weights (see the module's docstring)."""
        glob, factor = _ATTENTION_WEIGHTS
        if not fnmatchcase(stage, glob) or not self.limits.relative_l2:
            return self.limits
        return _limits(min(factor * self.limits.relative_l2, 1.0), self.limits.top1, self.limits.token_errors)


def _limits(relative: float, top1: float, errors: float) -> Limits:
    cosine, kl = max(relative**2, 1e-12), min(50 * relative**2, 1.0)
    return Limits(relative, 50 * relative, cosine, kl, 25 * relative, top1, errors, errors)


def _preset(name: str, title: str, roundoff: float, relative: float, top1: float, errors: float) -> Preset:
    return Preset(name, title, roundoff, _limits(relative, top1, errors))


EXACT = Preset("exact", "the same bits", 2.0**-24, Limits(0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0))
PRESETS: Mapping[str, Preset] = {
    each.name: each
    for each in (
        EXACT,
        _preset("f32", "float32 throughout", 2.0**-24, 1e-4, 0.995, 0.0),
        _preset("f16", "weights or activations in float16", 2.0**-11, 1e-2, 0.98, 0.0),
        _preset("q8_0", "weights in blocks of 8 bits", 0.0055, 4e-2, 0.95, 0.02),
        _preset("bf16", "weights or activations in bfloat16", 2.0**-8, 5e-2, 0.95, 0.02),
        _preset("q4", "weights in blocks of 4 to 6 bits", 0.087, 0.3, 0.75, 0.25),
    )
}
"""All presets, from the strictest to the loosest."""

_SETTINGS = ("answer.temperatures", "answer.candidates")  # stages that no arithmetic changes
_BLOCKS = ("q8_0", "q4")  # presets of quantised weights

_ARITHMETIC = {
    r"(float|f|fp)(32|64)|tf32": "f32",
    r"(float|f|fp)16|half": "f16",
    r"b(rain)?f(loat)?16": "bf16",
    r"i?q8.*|int8": "q8_0",
    r"i?q[456].*|int4|mxfp4|nvfp4": "q4",
}


def find_preset(name: str) -> Preset:
    """Returns the preset of that name; raises `BadInput`, which lists the known names, if it does not exist."""
    try:
        return PRESETS[name]
    except KeyError:
        raise BadInput(f"there is no preset {name!r:.80}; expected one of {', '.join(PRESETS)}") from None


def preset_of(*metas: Mapping[str, Any]) -> tuple[Preset, str]:
    """Returns the preset of the coarsest arithmetic that traces name, and the reason as a clause.

    Args:
        metas: of the trace; or of the reference and the candidate.
    """
    arithmetics = [_named_arithmetic(meta) for meta in metas]
    order = list(PRESETS)
    names = [each[0] for each in arithmetics if each]
    name = max(names, key=order.index, default="f32")
    return PRESETS[name], _reason([each[1] if each else "" for each in arithmetics])


def _named_arithmetic(meta: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns the preset of a trace's arithmetic, and how the trace names it; None if it names none."""
    for key in ("quantization", "dtype"):
        if isinstance(value := meta.get(key), str) and (name := _arithmetic(value)):
            return name, f"the {key} {value}"
    return None


def _reason(arithmetics: Sequence[str]) -> str:
    """Returns why a tolerance was chosen, from what each trace names, or does not."""
    if not any(arithmetics):
        return "no trace says how it was computed"
    if len(arithmetics) == 1:
        return f"the trace has {arithmetics[0]}"
    reference, candidate = arithmetics
    if reference == candidate:
        return f"both traces have {reference}"
    if reference and candidate:
        return f"the reference has {reference} and the candidate {candidate}"
    side, silent_side = ("reference", "candidate") if reference else ("candidate", "reference")
    return f"the {side} has {reference or candidate} and the {silent_side} names none"


def half_precision_of(meta: Mapping[str, Any]) -> str | None:
    """Returns `bfloat16` or `float16` if a trace with that metadata was computed in half precision.

    Returns None for other traces, including those whose weights alone are stored in half precision.
    """
    dtype = meta.get("dtype")
    if meta.get("quantization") or not isinstance(dtype, str):
        return None
    return {"bf16": "bfloat16", "f16": "float16"}.get(_arithmetic(dtype) or "")


def _arithmetic(value: str) -> str | None:
    value = value.strip().lower().removeprefix("torch.")
    return next((name for pattern, name in _ARITHMETIC.items() if re.fullmatch(pattern, value)), None)


@dataclass(frozen=True)
class Tolerances:
    """The limits of every stage: those of a preset, changed by rules for the stages of a glob. Later rules win.

    The front end has no quantised weights, so under presets of blocks it has the limits of float32. So have the
    settings of draws, `answer.temperatures` and `answer.candidates`, under every preset but `exact`. Attention weights
    have wider limits (see the module's docstring).
    """

    preset: Preset
    rules: tuple[tuple[str, Mapping[str, float]], ...] = field(default=())

    def for_stage(self, stage: str) -> Limits:
        """Returns the limits of a stage."""
        limits = self.preset.for_stage(stage)
        if self.preset.name in _BLOCKS and stage.startswith("frontend."):
            limits = PRESETS["f32"].limits
        if stage in _SETTINGS and self.preset is not EXACT:
            limits = PRESETS["f32"].limits
        for glob, changes in self.rules:
            if fnmatchcase(stage, glob):
                limits = replace(limits, **changes)
        return limits


def read_rules(texts: Iterable[str]) -> tuple[tuple[str, Mapping[str, float]], ...]:
    """Returns limits from text: `relative_l2=1e-3,peak=0.1` for all stages, `encoder.*:relative_l2=1e-3` for some.

    Raises `BadInput` for an unknown measure or a limit that is not a number of at least 0.
    """
    rules = []
    for text in texts:
        glob, colon, limits = text.rpartition(":")
        changes = {}
        for part in limits.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or name not in MEASURES:
                raise BadInput(
                    f"tolerance {text!r:.80} is not understood; expected MEASURE=LIMIT or GLOB:MEASURE=LIMIT, with "
                    f"one of {', '.join(MEASURES)}"
                )
            changes[name] = _limit(text, value)
        if colon and not glob.strip():
            raise BadInput(f"tolerance {text!r:.80} names no stage before its colon; expected a glob such as encoder.*")
        rules.append((glob.strip() or "*", changes))
    return tuple(rules)


def check_rules(rules: Iterable[tuple[str, Mapping[str, float]]], stages: Iterable[str]) -> None:
    """Raises `BadInput` for a rule that fits none of the stages, and names the most similar ones."""
    names = list(stages)
    for glob, _ in rules:
        if not any(fnmatchcase(stage, glob) for stage in names):
            similar = get_close_matches(re.sub(r"[][*?!]", "", glob), names, n=3, cutoff=0.0)
            raise BadInput(
                f"the tolerance for {glob!r:.80} matches no compared stage; the nearest stages are {', '.join(similar)}"
            )


def _limit(text: str, value: str) -> float:
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if not limit >= 0:
        raise BadInput(f"tolerance {text!r:.80} has the limit {value!r:.40}; expected a number of at least 0")
    return limit
