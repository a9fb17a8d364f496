"""Tolerance presets of each precision, and user-defined limits."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.support.networks import computed
from workbench.compare import compare, judge
from workbench.compare.presets import MEASURES, PRESETS, Limits, Tolerances, find_preset, preset_of, read_rules
from workbench.core.errors import BadInput

STEPS = ["float32", "float16", "q8_0", "q4_0"]
NAMES = {"float32": "f32", "float16": "f16", "q8_0": "q8_0", "q4_0": "q4"}


def test_presets_are_ordered_from_strictest_to_loosest() -> None:
    limits = [preset.limits for preset in PRESETS.values()]
    for one, other in pairwise(limits):
        for field in fields(Limits):
            strict, loose = getattr(one, field.name), getattr(other, field.name)
            assert strict >= loose if field.name == "top1" else strict <= loose, field.name


@pytest.mark.parametrize("dtype", STEPS)
@pytest.mark.parametrize("seed", range(3))
def test_each_precision_passes_its_preset_with_a_margin(dtype: str, seed: int) -> None:
    comparison = compare(computed("float32", seed), computed(dtype, seed, reverse=True))
    assert comparison.tolerances.preset.name == NAMES[dtype]
    assert comparison.within, judge(comparison).sentence
    largest = max(each.numbers.relative_l2 for each in comparison.stages if each.numbers)
    limit = comparison.tolerances.preset.limits.relative_l2
    assert limit / 500 < largest < limit / 1.2, "neither out of reach nor at its edge"


@pytest.mark.parametrize("dtype, stricter", list(zip(STEPS, ["exact", *NAMES.values()])))
def test_each_precision_fails_the_next_stricter_preset(dtype: str, stricter: str) -> None:
    comparison = compare(computed("float32"), computed(dtype, reverse=True), Tolerances(PRESETS[stricter]))
    assert not comparison.within


@pytest.mark.parametrize(
    "metas, name, reason",
    [
        ([{"dtype": "float32"}, {"dtype": "float32"}], "f32", "both traces have the dtype float32"),
        (
            [{"dtype": "float32"}, {"dtype": "q8_0"}],
            "q8_0",
            "the reference has the dtype float32 and the candidate the dtype q8_0",
        ),
        (
            [{"dtype": "torch.bfloat16"}, {"dtype": "F16"}],
            "bf16",
            "the reference has the dtype torch.bfloat16 and the candidate the dtype F16",
        ),
        (
            [{"dtype": "float32"}, {"dtype": "f16", "quantization": "Q4_K_M"}],
            "q4",
            "the reference has the dtype float32 and the candidate the quantization Q4_K_M",
        ),
        ([{}, {"dtype": "float16"}], "f16", "the candidate has the dtype float16 and the reference names none"),
        ([{"dtype": "q5_1"}], "q4", "the trace has the dtype q5_1"),
        ([{"dtype": "float64"}, {}], "f32", "the reference has the dtype float64 and the candidate names none"),
        ([{"dtype": "posit8"}, {"dtype": 3}], "f32", "no trace says how it was computed"),
        ([{}], "f32", "no trace says how it was computed"),
    ],
)
def test_preset_follows_the_coarsest_precision_of_the_traces(metas: list[dict], name: str, reason: str) -> None:
    preset, stated_reason = preset_of(*metas)
    assert (preset.name, stated_reason) == (name, reason)


def test_rules_change_stage_limits_in_order() -> None:
    rules = read_rules(["relative_l2=1e-3,peak=2", "encoder.*: relative_l2 = 0.5", "encoder.layers.3:relative_l2=inf"])
    tolerances = Tolerances(PRESETS["f32"], rules)
    assert tolerances.for_stage("logits").relative_l2 == 1e-3 and tolerances.for_stage("logits").peak == 2
    assert tolerances.for_stage("logits").kl == PRESETS["f32"].limits.kl
    assert (
        tolerances.for_stage("encoder.output").relative_l2 == 0.5 and tolerances.for_stage("encoder.output").peak == 2
    )
    assert tolerances.for_stage("encoder.layers.3").relative_l2 == float("inf")


@pytest.mark.parametrize(
    "text", ["relative_l2", "l2=1", "relative_l2=x", "peak=-1", "peak=nan", ":peak=1", "", "a:", "peak=1,"]
)
def test_invalid_rule_raises_one_line_error(text: str) -> None:
    with pytest.raises(BadInput, match=r"^tolerance .*; expected ") as caught:
        read_rules([text])
    assert "\n" not in str(caught.value)


def test_unknown_preset_error_lists_the_presets() -> None:
    with pytest.raises(BadInput, match="there is no preset 'f8'; expected one of exact, f32, f16, "):
        find_preset("f8")
    assert find_preset("q4").limits.peak > find_preset("q8_0").limits.peak
    assert "relative_l2" in MEASURES


def test_quantised_presets_keep_float32_limits_for_the_front_end() -> None:
    for name, preset in PRESETS.items():
        tolerances = Tolerances(preset)
        expected = PRESETS["f32"] if name in ("q8_0", "q4") else preset
        assert (
            tolerances.for_stage("frontend.features") == expected.limits
            and tolerances.for_stage("encoder.input") == preset.limits
        )
    changed = Tolerances(PRESETS["q4"], read_rules(["frontend.*:relative_l2=0.5"]))
    assert changed.for_stage("frontend.fbank").relative_l2 == 0.5


def test_correct_attention_weights_in_half_precision_are_within_their_limits() -> None:
    """A softmax turns the rounding of a large score into a large relative error of its weight."""
    rng = np.random.default_rng(0)
    queries, keys = (torch.from_numpy(4 + rng.standard_normal((4, 60, 32))).float() for _ in range(2))

    def weights(dtype: torch.dtype) -> np.ndarray:
        scores = queries.to(dtype).float() @ keys.to(dtype).float().transpose(1, 2) / 32**0.5
        return torch.softmax(scores.to(dtype).float(), dim=-1).numpy()

    exact, rounded = weights(torch.float32), weights(torch.bfloat16)
    error = float(np.linalg.norm(rounded - exact) / np.linalg.norm(exact))
    tolerances = Tolerances(PRESETS["bf16"])
    assert tolerances.for_stage("encoder.layers.0.attention.context").relative_l2 < error
    for stage in ("encoder.layers.0.attention.weights", "decoder.layers.0.cross_attention.weights"):
        assert error < tolerances.for_stage(stage).relative_l2 < 0.25
    assert Tolerances(PRESETS["exact"]).for_stage("encoder.layers.0.attention.weights").relative_l2 == 0
