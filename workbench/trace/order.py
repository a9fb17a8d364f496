"""The order in which stages are computed, and the kind of each: numbers, logits, token ids, streams of ids or a text.

The names are those of `Trace`. This file knows no models. It sorts by groups of names, then by layer number; parts of a
layer come before the layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from workbench.trace.inside import DECODER_PARTS, PARTS, layer_and_part, place_inside
from workbench.trace.step_names import beam_of, is_choice, step_and_stage

Kind = Literal["numbers", "logits", "tokens", "streams", "text", "logprobs"]

SEACO = ("bias_encoder", "seaco_filter", "seaco_cif", "seaco_decoder", "seaco")  # Paraformer's hotwords
GROUPS = ("frontend", "prompt", "encoder", "ctc", "predictor", "tower", "adaptor", "decoder", *SEACO, "llm", "codec")
"""The first words of stage names in the order of the computation; `_FINAL_STAGES` come at the end."""
_GROUP_ORDERS = {
    "frontend": ("fbank", "lfr", "features"),
    "encoder": ("input", "layers", "output"),
    "predictor": ("alphas", "embeddings"),
    "decoder": ("input", "layers", "output"),
    "seaco_filter": ("layers", "scores"),
    "seaco_cif": ("layers", "output"),
    "seaco_decoder": ("layers", "output"),
    "seaco": ("decoder", "logits"),
    "llm": ("embeddings", "layers", "norm"),
    "beams": ("scores", "candidates", "parents", "tokens", "finished"),  # the choice of a step's hypotheses
}
_ANSWER = ("embeddings", "norm", "logprobs", "alternatives", "temperatures", "candidates", "rooms")
_CODEC = ("rows", "codes", "latents", "audio")  # of an answer; `codec.logits` belong to the prompt
_FINAL_STAGES = (
    *("logits", "ctc.logits", "ctc.posteriors"),
    *(f"answer.{name}" for name in _ANSWER),
    *(f"codec.{name}" for name in _CODEC),
    *("tokens", "tokens.logprobs", "text"),
)
_PROMPT_ENDS = _FINAL_STAGES[:3]  # of the prompt's pass; the rest of `_FINAL_STAGES` comes after the decoding steps
PROMPT_PASS = (*(f"{group}.*" for group in GROUPS if group != "codec"), "codec.logits", "logits")
"""Globs of the stages of one pass over the input. A model computes tokens and answers in further passes."""
STREAMS = ("codec.rows", "codec.codes")
"""Stages of parallel streams of ids [rows, streams]."""


def computation_order(stages: Iterable[str], recorded: bool = False) -> list[str]:
    """Returns the stages in the order of the computation.

    Args:
        stages: their names.
        recorded: whether they come in the order in which a pass recorded them. Then only the front end and the prompt
            move to the front, where the search for a difference begins, and tokens and texts move to the end.
    """
    stages = list(stages)
    if not recorded:
        return sorted(stages, key=_with_steps)
    first = {"frontend": 0, "prompt": 1}

    def rank(stage: str) -> tuple[int, int, tuple[Any, ...]]:
        step, _ = step_and_stage(stage)
        if step is not None:
            return 3, step, _within_step(stage)
        if stage in _FINAL_STAGES:
            return (3, -1, ()) if stage in _PROMPT_ENDS else (4, 0, ())
        return first.get(stage.partition(".")[0], 2), 0, ()

    return sorted(stages, key=rank)


def are_known(stages: Iterable[str]) -> bool:
    """Returns whether at least half of the names are known, so that the order of the computation follows from them."""
    known = [_is_known(stage) for stage in stages]
    return 2 * sum(known) >= len(known)


def _is_known(stage: str) -> bool:
    stage = step_and_stage(stage)[1]
    if stage in _FINAL_STAGES:
        return True
    if inside := layer_and_part(stage):
        return inside[1] in PARTS or inside[1] in DECODER_PARTS
    head, *other_words = stage.split(".")
    in_order = len(other_words) == 1 or other_words[:1] == ["layers"]
    return head in (*GROUPS, "answer") and in_order


def _with_steps(stage: str) -> tuple[int, int, tuple[Any, ...]]:
    """Returns the sort key of a stage among the prompt's pass, the decoding steps, and what the model wrote."""
    step, _ = step_and_stage(stage)
    if step is not None:
        return 1, step, _within_step(stage)
    return 2 if stage in _FINAL_STAGES and stage not in _PROMPT_ENDS else 0, 0, _place(stage)


def _within_step(stage: str) -> tuple[Any, ...]:
    """Returns the sort key of a stage of a step: the choice of the hypotheses first, then each hypothesis."""
    beam = beam_of(stage)
    return (-1 if is_choice(stage) or beam is None else beam), _place(step_and_stage(stage)[1])


def _place(stage: str) -> tuple[int, int, tuple[tuple[int, int, str], ...]]:
    """Returns the sort key of a stage: its group, its place in the group, its layer.

    Parts of a layer come before the layer's output.
    """
    head, *other_words = stage.split(".")
    if stage in _FINAL_STAGES:
        return len(GROUPS) + 1, _FINAL_STAGES.index(stage), ()
    group = GROUPS.index(head) if head in GROUPS else len(GROUPS)
    order_in_group = _GROUP_ORDERS.get(head, ())
    # A stage that a family adds, such as a norm halfway, comes before the end of its group.
    order_key = (
        2 * order_in_group.index(other_words[0])
        if other_words and other_words[0] in order_in_group
        else 2 * len(order_in_group) - 3
    )
    words = [head, *other_words] if group == len(GROUPS) else other_words
    inside = layer_and_part(stage)
    if inside:
        words = words[: len(words) - len(inside[1].split("."))]
    parts = tuple((0, int(word), word) if re.fullmatch("[0-9]{1,15}", word) else (1, 0, word) for word in words)
    if inside:
        return group, order_key, (*parts, (1, place_inside(*inside), inside[1]))
    return group, order_key, (*parts, (2, 0, ""))


def is_aside(stage: str) -> bool:
    """Returns whether a stage only adds to another, as `tokens.alternatives` does, the ids of `tokens.logprobs`.

    It is not compared.
    """
    if is_choice(stage):
        return stage.endswith(".candidates")
    return (stage.startswith("tokens.") and stage != "tokens.logprobs") or stage in (
        "answer.alternatives",
        "answer.rooms",
    )


def kind_of(stage: str, array: np.ndarray) -> Kind:
    """Returns the kind of a stage, by its name and type."""
    last = stage.rpartition(".")[2]
    if stage in ("tokens.logprobs", "answer.logprobs"):
        return "logprobs"
    if stage in STREAMS and array.ndim == 2:
        return "streams"
    if array.dtype.kind in "US" or stage == "text":
        return "text"
    if last == "tokens" or (array.dtype.kind in "iu" and array.ndim == 1):
        return "tokens"
    return "logits" if last == "logits" and array.ndim == 2 else "numbers"


def layer_counts(stages: Iterable[str]) -> dict[str, int]:
    """Returns how many layers each stack has, such as `{"encoder.layers": 12}`, for stacks without gaps."""
    numbers: dict[str, set[int]] = {}
    for stage in stages:
        if match := re.fullmatch(r"(.+\.layers)\.([0-9]{1,9})", stage):
            numbers.setdefault(match[1], set()).add(int(match[2]))
    return {
        stack: len(layer_numbers)
        for stack, layer_numbers in numbers.items()
        if layer_numbers == set(range(len(layer_numbers)))
    }
