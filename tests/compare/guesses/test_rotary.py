"""The RoPE base of a candidate, and a scale of its positions, are estimated from the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.layers import stages, turned
from workbench.compare import compare, judge
from workbench.trace.trace import Trace

REFERENCE = stages()


@pytest.mark.parametrize("neighbours", [False, True])
@pytest.mark.parametrize("shift, words", [(1, "off by +1;"), (-2, "off by -2;"), (5, None)])
def test_position_of_a_decoding_step_is_named_by_the_rates_of_the_prompt(
    neighbours: bool, shift: int, words: str | None
) -> None:
    draw = np.random.default_rng(4)
    prompt, step = draw.standard_normal((9, 2, 8)), draw.standard_normal((1, 2, 8))
    reference = {
        "llm.layers.0.attention.key_norm": prompt,
        "llm.layers.0.attention.key_rope": turned(prompt, neighbours=neighbours),
        "steps.1.llm.layers.0.attention.key_norm": step,
        "steps.1.llm.layers.0.attention.key_rope": turned(step, first=9, neighbours=neighbours),
    }
    wrong = {"steps.1.llm.layers.0.attention.key_rope": turned(step, first=9 + shift, neighbours=neighbours)}
    explanation = judge(compare(Trace(reference, {}), Trace({**reference, **wrong}, {}))).explanation
    if words is None:
        assert explanation is None
    else:
        assert explanation is not None and f"RoPE's position is {words}" in explanation.sentence


@pytest.mark.parametrize("neighbours", [False, True])
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({20: 21}, "RoPE's position is off by +1 in row 20;"),
        ({19: 17, 20: 18}, "RoPE's position is off by -2 in rows 19, 20;"),
        ({20: 0}, "RoPE's position is off by -20 in row 20;"),
        ({19: 0, 20: 13}, None),
    ],
)
def test_positions_in_a_cache_are_named(neighbours: bool, changed: dict[int, int], words: str | None) -> None:
    keys = np.random.default_rng(4).standard_normal((21, 2, 8))
    wrong = cache = turned(keys, neighbours=neighbours)
    for row, place in changed.items():
        wrong = np.concatenate(
            [wrong[:row], turned(keys[row : row + 1], first=place, neighbours=neighbours), wrong[row + 1 :]]
        )
    stage = "steps.4.llm.layers.0.cache.key"
    explanation = judge(compare(Trace({stage: cache}, {}), Trace({stage: wrong}, {}))).explanation
    if words is None:
        assert explanation is None
    else:
        assert explanation is not None and explanation.sentence.startswith(words)


def test_missing_rope_is_named() -> None:
    wrong = stages(noise=1e-7, attention__query_rope=lambda x: x)
    explanation = judge(compare(Trace(REFERENCE, {}), Trace(wrong, {}))).explanation
    assert explanation is not None and explanation.kind == "RoPE"
    assert ".attention.query_norm: RoPE is left out;" in explanation.sentence


def scale_positions(x: np.ndarray, factor: float) -> np.ndarray:
    pairs = x.shape[-1] // 2
    angles = factor * np.arange(len(x))[:, None] * 1e6 ** (-np.arange(pairs) / pairs)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    one, other = x[..., :pairs], x[..., pairs:]
    return np.concatenate([one * cos - other * sin, other * cos + one * sin], axis=-1)


@pytest.mark.parametrize(
    "rope, sentence",
    [
        (lambda x: turned(x, base=8e6), "RoPE has the base 8000000, where the reference has 1000000"),
        (lambda x: turned(x, base=32000.0), "RoPE has the base 32000, where the reference has 1000000"),
        (lambda x: turned(x, base=1e4), "RoPE has the base 10000, where the reference has 1000000"),
        (
            lambda x: scale_positions(x, 0.25),
            "RoPE turns by 0.25 times the reference's angles, as when positions are scaled",
        ),
        (lambda x: scale_positions(x, 1.4), "RoPE turns by 1.4 times the reference's angles"),
        (
            lambda x: np.concatenate([turned(x[..., :4]), x[..., 4:]], axis=-1),
            "RoPE turns only the first 4 of the 8 channels of a head",
        ),
    ],
)
def test_wrong_rope_base_or_scale_is_named(rope: Any, sentence: str) -> None:
    wrong = stages(noise=1e-7, attention__query_rope=rope)
    explanation = judge(compare(Trace(REFERENCE, {}), Trace(wrong, {}))).explanation
    assert explanation is not None and explanation.stage == "llm.layers.1.attention.query_rope"
    assert explanation.sentence.startswith(sentence)
