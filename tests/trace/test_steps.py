"""Traces of decoding steps: their notation, names, order, size limit, and the token ids that they follow."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput
from workbench.trace.order import computation_order
from workbench.trace.step_names import glob_of_stage, step_and_stage, step_stage
from workbench.trace.steps import ForcedDecoding, StepChoice, followed, read_steps, steps_of
from workbench.trace.trace import StageFilter, Trace

STAGES = ["llm.embeddings", "llm.layers.0", "llm.layers.0.attention.key_rope", "llm.norm", "logits"]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("first", (1,)), ("all", ()), ("3", (3,)), ("5, 1,20,5", (1, 5, 20)), ([2, 4], (2, 4))],
)
def test_step_choices_are_parsed(text: str, numbers: tuple[int, ...]) -> None:
    assert read_steps(text) == StepChoice(numbers)


def test_empty_step_choice_is_none() -> None:
    assert read_steps("") is None and read_steps(None) is None


@pytest.mark.parametrize("text", ["none", "0", "1,0", "1,,2", "-1", "first,2", "1.5", "٣", [], "1" * 20])
def test_invalid_step_choices_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^the steps are .*; expected first, all, or numbers from 1 on such as 1,5,20$"):
        read_steps(text)


def test_a_generation_has_a_step_for_each_token_but_the_last() -> None:
    assert StepChoice().for_ids([7, 8, 9], "it") == (1, 2)
    assert StepChoice((2,)).for_ids([7, 8, 9], "it") == (2,)
    with pytest.raises(BadInput, match=r"^step 3 was asked for, and it wrote 3 tokens, which takes steps 1 to 2$"):
        StepChoice((1, 3)).for_ids([7, 8, 9], "it")
    with pytest.raises(BadInput, match=r"^a decoding step .* it wrote 1 token, which takes the prompt's pass alone$"):
        StepChoice().for_ids([7], "it")


@given(st.integers(0, 999_999_999), st.sampled_from(STAGES))
def test_step_stage_names_are_split_into_step_and_stage(step: int, stage: str) -> None:
    assert step_and_stage(step_stage(step, stage)) == (step, stage)
    assert step_and_stage(stage) == (None, stage)


def test_globs_match_a_step_or_only_the_stage() -> None:
    assert glob_of_stage("steps.*.llm.layers.*") == "llm.layers.*"
    name = "steps.4.llm.layers.0"
    assert all(StageFilter(glob)(name) for glob in ("*", "steps.*", "steps.4.*", "llm.layers.?", "steps.*.llm.*"))
    assert not any(StageFilter(glob)(name) for glob in ("steps.3.*", "logits", "layers.0"))


def test_whole_layer_globs_match_no_parts_inside_layers_of_steps() -> None:
    inside = "steps.4.llm.layers.0.cache.key"
    assert not any(StageFilter(glob)(inside) for glob in ("*", "steps.*", "steps.4.llm.layers.*", "llm.layers.*"))
    assert all(StageFilter(glob)(inside) for glob in ("llm.layers.*.cache.*", "steps.4.llm.layers.0.*", inside))


@given(st.randoms())
def test_steps_are_ordered_between_prompt_stages_and_tokens(random: object) -> None:
    before = ["frontend.fbank", "prompt.tokens", "encoder.layers.0", *STAGES]
    steps = [step_stage(step, stage) for step in (1, 2, 10) for stage in STAGES]
    expected = [*before, *steps, "tokens", "text"]
    expected.insert(expected.index("llm.layers.0"), "llm.layers.0.attention.key_rope")
    expected = [stage for n, stage in enumerate(expected) if stage not in expected[:n]]
    for step in (1, 2, 10):
        inside, layer = (expected.index(step_stage(step, name)) for name in STAGES[2:0:-1])
        expected[inside], expected[layer] = expected[layer], expected[inside]
    shuffled = list(expected)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert computation_order(shuffled) == expected
    recorded = [stage for stage in expected if not stage.startswith("steps.")]
    assert computation_order([*steps, *recorded], recorded=True) == expected


def test_token_ids_to_follow_are_read_from_steps_tokens_or_a_list(tmp_path: Path) -> None:
    own = Trace({"tokens": np.array([4, 5, 6])}, {})
    assert followed(own) == [4, 5, 6] == followed([4, 5, 6]) == followed(np.array([4, 5, 6]))
    forced = ForcedDecoding([9, 8, 7], [1], StageFilter("*"))
    stepped = Trace(dict(own), forced.meta())
    assert followed(stepped.save(tmp_path / "it.safetensors")) == [9, 8, 7]
    assert followed(None) is None
    with pytest.raises(BadInput, match="has neither decoding steps nor tokens"):
        followed(Trace({"logits": np.ones((1, 2))}, {}))
    for wrong in ([], [-1], [0.5], [[1]]):
        with pytest.raises(BadInput, match="not a list of token ids"):
            followed(wrong)


@pytest.mark.parametrize("steps", [1, {}, {"traced": [1]}, {"traced": [1], "followed": ["a"]}])
def test_damaged_steps_metadata_are_refused(steps: object) -> None:
    with pytest.raises(BadInput, match=r"^the metadata of a trace have steps = "):
        steps_of(Trace({}, {"steps": steps}))


def test_error_about_ids_to_follow_names_the_trace_file(tmp_path: Path) -> None:
    beams = {"parents": [[0, 5]], "tokens": [[1, 2]]}
    for name, stages, steps, sentence in (
        ("a", {}, 1, "the metadata of a.safetensors have steps = 1"),
        ("b", {}, {"traced": [1], "followed": [], "beams": 1}, "the metadata of b.safetensors have hypotheses 1"),
        ("c", {}, {"traced": [1], "followed": [], "beams": beams}, "c.safetensors: the hypotheses to follow have"),
        ("d", {"logits": np.ones((1, 2))}, None, "d.safetensors has neither decoding steps nor tokens"),
        ("e", {"tokens": np.ones((1, 2))}, None, "the tokens of e.safetensors are not a list of token ids"),
    ):
        path = Trace(stages, {} if steps is None else {"steps": steps}).save(tmp_path / f"{name}.safetensors")
        with pytest.raises(BadInput, match=f"^{re.escape(sentence)}"):
            followed(path)


def test_trace_beyond_the_size_limit_is_refused_after_the_first_step() -> None:
    forced = ForcedDecoding(range(101), range(1, 101), StageFilter("*"), max_bytes=10_000)
    recorder = forced.recorder_of(1)
    assert recorder is not None
    recorder.put("llm.norm", np.zeros((1, 50), np.float32))
    with pytest.raises(BadInput, match=r"^100 decoding steps with these stages would take 2e-05 GB; expected at most"):
        forced.end_pass(1)


def test_selected_steps_and_stages_are_recorded() -> None:
    forced = ForcedDecoding(range(101), range(1, 51), StageFilter("logits,steps.2.llm.*"), max_bytes=10_000)
    for step in range(1, 101):
        recorder = forced.recorder_of(step)
        if recorder is not None:
            for stage in ("llm.norm", "logits"):
                recorder.put(stage, np.full((1, 25), step, np.float32))
        forced.end_pass(step)
    assert len(forced.recorder.stages) == 51 and forced.fed_ids == tuple(range(50))
    assert forced.recorder.stages["steps.2.llm.norm"][0, 0] == 2
    second = forced.recorder_of(2)
    assert second is not None and list(second.stages) == ["llm.norm", "logits"]
