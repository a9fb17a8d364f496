"""The computation order of stages, and the kind of values a stage holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workbench.trace.order import computation_order, kind_of, layer_counts

ORDER = [
    "frontend.fbank",
    "frontend.lfr",
    "frontend.features",
    "prompt.tokens",
    "encoder.input",
    "encoder.layers.0",
    "encoder.layers.1.fsmn",
    "encoder.layers.1",
    "encoder.layers.2",
    "encoder.layers.10",
    "encoder.after_norm",
    "encoder.output",
    "predictor.alphas",
    "predictor.embeddings",
    "adaptor.output",
    "decoder.layers.0",
    "decoder.output",
    "llm.embeddings",
    "llm.layers.9",
    "llm.layers.11",
    "llm.norm",
    "logits",
    "ctc.posteriors",
    "tokens",
    "text",
]


@given(st.permutations(ORDER))
def test_computation_order_follows_from_stage_names(shuffled: list[str]) -> None:
    assert computation_order(shuffled) == ORDER


ANSWER = [
    "codec.logits",  # of the prompt, as `logits` are
    "logits",
    "steps.1.logits",
    *(f"answer.{name}" for name in ("embeddings", "norm", "logprobs", "alternatives", "temperatures")),
    *(f"answer.{name}" for name in ("candidates", "rooms")),
    *(f"codec.{name}" for name in ("rows", "codes", "latents", "audio")),
    "tokens",
    "tokens.logprobs",
    "text",
]
"""An answer follows the prompt; its sound follows the choices of its ids."""


@given(st.permutations(ANSWER))
def test_stages_of_an_answer_are_sorted_in_computation_order(shuffled: list[str]) -> None:
    assert computation_order(shuffled) == ANSWER


@example(["e.1", "e.01"])
@given(st.lists(st.text(alphabet="enc.layrs019²tok", max_size=24), unique=True))
def test_order_of_any_names_is_deterministic_and_complete(names: list[str]) -> None:
    order = computation_order(names)
    assert sorted(order) == sorted(names)
    assert computation_order(reversed(names)) == order


@given(st.permutations(ORDER))
def test_recorded_order_is_kept_between_front_end_and_output_stages(shuffled: list[str]) -> None:
    order = computation_order(shuffled, recorded=True)
    middle = [stage for stage in shuffled if stage in order[4:-4]]
    assert order[4:-4] == middle
    assert {stage.split(".")[0] for stage in order[:3]} == {"frontend"} and order[3] == "prompt.tokens"
    assert set(order[-4:]) == {"logits", "ctc.posteriors", "tokens", "text"}


@pytest.mark.parametrize(
    "stage, array, kind",
    [
        ("encoder.output", np.zeros((3, 4), np.float32), "numbers"),
        ("logits", np.zeros((3, 4)), "logits"),
        ("logits", np.zeros(4), "numbers"),
        ("ctc.logits", np.zeros((3, 4)), "logits"),
        ("tokens", np.zeros(4, np.float32), "tokens"),
        ("prompt.tokens", np.zeros(4, np.int32), "tokens"),
        ("codec.streams", np.zeros((4, 8), np.int64), "numbers"),
        ("text", np.array("it"), "text"),
        ("title", np.array("it"), "text"),
    ],
)
def test_the_kind_of_a_stage_follows_from_name_and_type(stage: str, array: np.ndarray, kind: str) -> None:
    assert kind_of(stage, array) == kind


def test_stacks_are_counted_unless_they_have_gaps() -> None:
    names = ["encoder.layers.0", "encoder.layers.1", "encoder.layers.1.fsmn", "llm.layers.3", "llm.layers.4", "logits"]
    assert layer_counts(names) == {"encoder.layers": 2}
