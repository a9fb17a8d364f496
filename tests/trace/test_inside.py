"""Which globs reach inside a layer, and the order of the parts of a layer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.compare.compare import compare
from workbench.core.errors import BadInput
from workbench.trace.inside import DECODER_PARTS, PARTS, check_weights, is_inside, no_such_part, only_inside
from workbench.trace.order import computation_order
from workbench.trace.trace import StageFilter, Trace

TODAY = ("encoder.input", "encoder.layers.3", "encoder.layers.3.fsmn", "encoder.layers.3.attention", "logits")
INSIDE = (
    "encoder.layers.3.attention.weights",
    "encoder.layers.3.input_norm",
    "llm.layers.12.mlp.up",
    "decoder.layers.0.fsmn",
    "adaptor.layers.0.attention.query",
)


@pytest.mark.parametrize(
    "glob", ["*", "*.*", "encoder.*", "encoder.layers.*", "*.layers.*", "*weights", "*.attention.weights", "?*,llm.*"]
)
def test_short_globs_take_what_they_took_before(glob: str) -> None:
    assert not any(map(StageFilter(glob), INSIDE))
    assert StageFilter(glob)("encoder.layers.3.fsmn") == (glob not in ("*weights", "*.attention.weights"))


@pytest.mark.parametrize(
    ("glob", "taken"),
    [
        ("encoder.layers.3.*", [*TODAY[2:4], *INSIDE[:2]]),
        ("*.layers.*.*", [*TODAY[2:4], *INSIDE]),
        ("*.*.*.attention.weights", [INSIDE[0]]),
        ("logits, llm.layers.*.mlp.up", ["logits", "llm.layers.12.mlp.up"]),
        ("encoder.layers.4.*", []),
    ],
)
def test_globs_of_four_parts_reach_inside(glob: str, taken: list[str]) -> None:
    assert sorted(filter(StageFilter(glob), (*TODAY, *INSIDE))) == sorted(taken)


@given(st.text(alphabet="encodrlayspt*?.0123", min_size=1, max_size=30).filter(lambda text: text.strip(". ,")))
def test_stages_of_whole_layers_are_matched_as_by_a_plain_glob(glob: str) -> None:
    plain, ours = StageFilter(glob, held=True), StageFilter(glob)
    assert [plain(stage) for stage in TODAY] == [ours(stage) for stage in TODAY]
    assert all(plain(stage) for stage in INSIDE if ours(stage))


def test_stages_that_exist_are_compared_with_any_glob() -> None:
    traces = [Trace({INSIDE[0]: np.eye(3)[None], "logits": np.eye(3)}, {}) for _ in range(2)]
    assert [each.stage for each in compare(*traces, stages="*").stages] == [INSIDE[0], "logits"]


@given(st.permutations(list(PARTS)))
def test_parts_come_in_the_order_of_the_computation_before_their_layer(shuffled: list[str]) -> None:
    layer = "encoder.layers.1"
    found = computation_order(
        ["encoder.layers.2", layer, *(f"{layer}.{part}" for part in shuffled), "encoder.layers.0"]
    )
    assert found == ["encoder.layers.0", *(f"{layer}.{part}" for part in PARTS), layer, "encoder.layers.2"]


def test_a_decoder_begins_with_its_feed_forward_part() -> None:
    parts = [f"decoder.layers.0.{part}" for part in DECODER_PARTS]
    assert computation_order(reversed(parts)) == parts


def test_only_globs_of_parts_must_match_something() -> None:
    assert only_inside("llm.layers.*.mlp.gate") and only_inside("encoder.layers.0.attention.weights")
    assert not any(map(only_inside, ("*", "encoder.layers.0.fsmn", "a.b.c.d", "encoder.layers.*")))
    assert not is_inside("encoder.layers.0.convolution") and is_inside("decoder.layers.0.fsmn")
    assert not is_inside("encoder.layers.0.gate_of_another_family")


def test_a_glob_without_a_match_is_explained() -> None:
    said = no_such_part("llm.layers.0.atention.weights", "demo/qwen on gguf", {})
    assert said == (
        "no stage inside the layers of demo/qwen on gguf matches 'llm.layers.0.atention.weights'; did you mean "
        "attention.weights?; llm.layers.0.* shows what a layer has"
    )
    why = no_such_part("llm.layers.0.attention.w*", "m on vllm", {"attention.weights": "they are not there"})
    assert why == "no stage inside the layers of m on vllm matches 'llm.layers.0.attention.w*': they are not there"
    assert "mean" not in no_such_part("llm.layers.0.attention.key_norm", "m on gguf", {})


def test_too_many_weights_are_refused() -> None:
    check_weights("it", 16, 1500, 1500)
    with pytest.raises(BadInput, match=r"^llm.layers.0.attention.weights would hold 16,000,000,000 numbers \(16 heads"):
        check_weights("llm.layers.0.attention.weights", 16, 40_000, 25_000)
