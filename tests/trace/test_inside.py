"""Stage globs that match parts inside a layer, and the order of the parts of a layer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.compare.compare import compare
from workbench.core.errors import BadInput
from workbench.trace.inside import DECODER_PARTS, PARTS, check_weights, is_inside, no_such_part_message, only_inside
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
def test_short_globs_match_no_parts_inside_layers(glob: str) -> None:
    assert not any(map(StageFilter(glob), INSIDE))
    assert StageFilter(glob)("encoder.layers.3.fsmn") == (glob not in ("*weights", "*.attention.weights"))


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("encoder.layers.3.*", [*TODAY[2:4], *INSIDE[:2]]),
        ("*.layers.*.*", [*TODAY[2:4], *INSIDE]),
        ("*.*.*.attention.weights", [INSIDE[0]]),
        ("logits, llm.layers.*.mlp.up", ["logits", "llm.layers.12.mlp.up"]),
        ("encoder.layers.4.*", []),
    ],
)
def test_globs_of_four_parts_match_parts_inside_layers(glob: str, expected: list[str]) -> None:
    assert sorted(filter(StageFilter(glob), (*TODAY, *INSIDE))) == sorted(expected)


@given(st.text(alphabet="encodrlayspt*?.0123", min_size=1, max_size=30).filter(lambda text: text.strip(". ,")))
def test_whole_layer_stages_match_like_a_plain_glob(glob: str) -> None:
    plain, by_parts = StageFilter(glob, is_recorded=True), StageFilter(glob)
    assert [plain(stage) for stage in TODAY] == [by_parts(stage) for stage in TODAY]
    assert all(plain(stage) for stage in INSIDE if by_parts(stage))


def test_inner_stages_of_traces_are_compared_with_any_glob() -> None:
    traces = [Trace({INSIDE[0]: np.eye(3)[None], "logits": np.eye(3)}, {}) for _ in range(2)]
    assert [each.stage for each in compare(*traces, stages="*").stages] == [INSIDE[0], "logits"]


@given(st.permutations(list(PARTS)))
def test_layer_parts_come_in_computation_order_before_their_layer(shuffled: list[str]) -> None:
    layer = "encoder.layers.1"
    order = computation_order(
        ["encoder.layers.2", layer, *(f"{layer}.{part}" for part in shuffled), "encoder.layers.0"]
    )
    assert order == ["encoder.layers.0", *(f"{layer}.{part}" for part in PARTS), layer, "encoder.layers.2"]


def test_decoder_layer_parts_begin_with_feed_forward() -> None:
    parts = [f"decoder.layers.0.{part}" for part in DECODER_PARTS]
    assert computation_order(reversed(parts)) == parts


def test_globs_of_inner_parts_are_recognised() -> None:
    assert only_inside("llm.layers.*.mlp.gate") and only_inside("encoder.layers.0.attention.weights")
    assert not any(map(only_inside, ("*", "encoder.layers.0.fsmn", "a.b.c.d", "encoder.layers.*")))
    assert not is_inside("encoder.layers.0.convolution") and is_inside("decoder.layers.0.fsmn")
    assert not is_inside("encoder.layers.0.gate_of_another_family")


def test_unmatched_glob_error_suggests_part_names_or_gives_the_reason() -> None:
    message = no_such_part_message("llm.layers.0.atention.weights", "demo/qwen on gguf", {})
    assert message == (
        "no stage inside the layers of demo/qwen on gguf matches 'llm.layers.0.atention.weights'; did you mean "
        "attention.weights?; llm.layers.0.* shows what a layer has"
    )
    message_with_reason = no_such_part_message(
        "llm.layers.0.attention.w*", "m on vllm", {"attention.weights": "they are not there"}
    )
    assert (
        message_with_reason
        == "no stage inside the layers of m on vllm matches 'llm.layers.0.attention.w*': they are not there"
    )
    assert "mean" not in no_such_part_message("llm.layers.0.attention.key_norm", "m on gguf", {})


def test_attention_weights_beyond_the_size_limit_are_refused() -> None:
    check_weights("it", 16, 1500, 1500)
    with pytest.raises(BadInput, match=r"^llm.layers.0.attention.weights would hold 16,000,000,000 numbers \(16 heads"):
        check_weights("llm.layers.0.attention.weights", 16, 40_000, 25_000)
