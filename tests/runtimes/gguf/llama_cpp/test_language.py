"""The language model on llama.cpp against transformers: tokens, stages, batches, options, beams, bad input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.gguf_language import PROMPT, ROWS, generated, opened, reference, traced
from tests.support.tiny_gguf import tiny_gguf, tiny_halves
from workbench.core.errors import BadInput
from workbench.decoding.alternatives import AlternativesRecorder
from workbench.decoding.generation import ENDED, Decoding
from workbench.embeddings.merge import Merged
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.files.language_file import language_config
from workbench.runtimes.gguf.llama_cpp import language as module
from workbench.runtimes.gguf.llama_cpp.context import STEP
from workbench.runtimes.gguf.llama_cpp.language import LanguageModel, open_language
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

STOPS = tuple(range(0, 456, 9))  # many, so that rows end at different steps
CASES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "qwen3": (tiny_gguf, {"kind": "qwen3"}),
    "qwen2, tied": (tiny_gguf, {"kind": "qwen2", "tie_word_embeddings": True}),
    "llama": (tiny_gguf, {"kind": "llama"}),
    "half of qwen3, tied": (tiny_halves, {"kind": "qwen3", "tie_word_embeddings": True}),
    "half of qwen2": (tiny_halves, {"kind": "qwen2"}),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[LanguageModel, Any]]:
    """The model of each case, and the network of transformers with the same weights."""
    folder = tmp_path_factory.mktemp("language")
    models_by_case = {}
    for number, (case, (write, options)) in enumerate(CASES.items()):
        network = write(folder / f"{number}.gguf", **options)
        models_by_case[case] = (opened(folder / f"{number}.gguf"), network)
    return models_by_case


@pytest.fixture(scope="module")
def language(models: dict[str, tuple[LanguageModel, Any]]) -> LanguageModel:
    return models["qwen3"][0]


@pytest.fixture(scope="module")
def network(models: dict[str, tuple[LanguageModel, Any]]) -> Any:
    return models["qwen3"][1]


# Comparison with transformers.


@pytest.mark.parametrize("case", CASES)
def test_greedy_ids_equal_those_of_transformers(models: dict[str, tuple[LanguageModel, Any]], case: str) -> None:
    language, network = models[case]
    ids = generated(language, [PROMPT], Decoding((), max_new_tokens=24))[0]
    assert ids == reference(network, PROMPT) and len(set(ids)) > 5


@pytest.mark.parametrize("case", CASES)
def test_alternatives_equal_the_top_logprobs_of_transformers(
    models: dict[str, tuple[LanguageModel, Any]], case: str
) -> None:
    language, network = models[case]
    recorders = [AlternativesRecorder(row) for row in range(len(ROWS))]

    def watch(*step: Any) -> None:
        for each in recorders:
            each(*step)

    decoding = Decoding(STOPS, max_new_tokens=12, alternatives=5)
    steps = [step.tolist() for step in language.generate(language.prompt(ROWS), decoding, watch)]
    for row, (prompt, ids) in enumerate(zip(ROWS, zip(*steps))):
        sequence = [*prompt, *(number for number in ids if number != ENDED)]
        with torch.inference_mode():
            logprobs = network(torch.tensor([sequence])).logits[0, len(prompt) - 1 : -1].double().log_softmax(-1)
        assert len(recorders[row].steps) == len(logprobs)
        for (numbers, values), expected in zip(recorders[row].steps, logprobs, strict=True):
            np.testing.assert_allclose(values, expected.topk(5).values, atol=1e-3)
            np.testing.assert_allclose(values, expected[torch.from_numpy(numbers)], atol=1e-3)
            # The margins between the likeliest tokens, which show near ties, agree as closely.
            np.testing.assert_allclose(values[0] - values, expected.topk(5).values[0] - expected[numbers], atol=1e-3)
    with pytest.raises(BadInput, match=r"^alternatives is 2 and beam_size 3"):
        language.generate(language.prompt([PROMPT]), Decoding((), beam_size=3, alternatives=2), AlternativesRecorder())


@pytest.mark.parametrize("case", CASES)
def test_stages_equal_those_of_a_transformers_forward_pass(
    models: dict[str, tuple[LanguageModel, Any]], case: str
) -> None:
    language, network = models[case]
    stages = traced(language, PROMPT)
    with torch.inference_mode():
        expected = network(torch.tensor([PROMPT]), output_hidden_states=True)
    layers = [f"llm.layers.{number}" for number in range(language.config.layers)]
    assert list(stages) == ["llm.embeddings", *layers, "llm.norm", "logits"]
    np.testing.assert_array_equal(stages["llm.embeddings"], expected.hidden_states[0][0].numpy())
    np.testing.assert_allclose(stages["logits"], expected.logits[0].numpy(), atol=1e-4)
    # transformers returns the input of each layer, and at the end the norm's output but not the last layer's.
    for stage, hidden in zip((*layers[:-1], "llm.norm"), expected.hidden_states[1:], strict=True):
        np.testing.assert_allclose(stages[stage], hidden[0].numpy(), atol=1e-4)
    with torch.inference_mode():
        norm = network.model.norm(torch.from_numpy(stages[layers[-1]]))
    np.testing.assert_allclose(stages["llm.norm"], norm.numpy(), atol=1e-4)


def test_trace_of_a_prompt_in_several_passes_equals_transformers(tmp_path: Path) -> None:
    network = tiny_gguf(tmp_path / "it.gguf", max_position_embeddings=4096)
    long = np.random.default_rng(1).integers(0, 512, 1100).tolist()
    stages = traced(opened(tmp_path / "it.gguf"), long)
    with torch.inference_mode():
        expected = network(torch.tensor([long])).logits[0].numpy()
    np.testing.assert_allclose(stages["logits"], expected, atol=1e-3)
    assert {len(stage) for stage in stages.values()} == {1100}


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("length", [6, 1100])
def test_each_layer_uses_the_substituted_output_of_the_layer_before(tmp_path: Path, kind: str, length: int) -> None:
    """Each stage is compared with one layer of transformers, also for a prompt of several passes."""
    network = tiny_gguf(tmp_path / "it.gguf", kind, max_position_embeddings=4096)
    language = opened(tmp_path / "it.gguf")
    ids = np.random.default_rng(1).integers(0, 512, length).tolist()
    names = ["llm.embeddings", *(f"llm.layers.{n}" for n in range(language.config.layers)), "llm.norm", "logits"]
    rng = np.random.default_rng(2)
    sizes = [512 if name == "logits" else language.config.hidden_size for name in names]
    substitutes = {
        name: rng.standard_normal((length, size), np.float32) for name, size in zip(names, sizes, strict=True)
    }
    recorder = Recorder(StageFilter(), substitutes)
    language.trace(language.prompt([ids]), recorder)
    assert list(recorder.stages) == names
    layers = [_layer(network, number) for number in range(language.config.layers)]
    with torch.inference_mode():
        parts = [*layers, network.model.norm, network.lm_head]
        for part, before, stage in zip(parts, names, names[1:]):
            expected = part(torch.from_numpy(substitutes[before])[None])[0].numpy()
            error = np.linalg.norm(recorder.stages[stage] - expected) / np.linalg.norm(expected)
            assert error < 2e-6, stage
    np.testing.assert_array_equal(recorder.stages["llm.embeddings"], language.embed(np.array([ids]))[0])


def _layer(network: Any, number: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that computes one layer of transformers: [1, positions, hidden] to the same shape."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(x.shape[1])[None]
        mask = torch.full((x.shape[1], x.shape[1]), -torch.inf).triu(1)[None, None]
        rotary = network.model.rotary_emb(x, positions)
        output = network.model.layers[number](
            x, attention_mask=mask, position_embeddings=rotary, position_ids=positions
        )
        return output[0] if isinstance(output, tuple) else output  # type: ignore[no-any-return]

    return forward


def test_substituted_prompt_may_be_longer_up_to_the_context_size(language: LanguageModel) -> None:
    width, limit = language.config.hidden_size, language.config.context
    recorder = Recorder(StageFilter(), {"llm.embeddings": np.ones((9, width))})
    language.trace(language.prompt([PROMPT]), recorder)
    assert [len(stage) for stage in recorder.stages.values()] == [len(PROMPT), *[9] * (language.config.layers + 2)]
    too_long = Recorder(StageFilter(), {"llm.embeddings": np.ones((limit + 1, width))})
    with pytest.raises(BadInput, match=f"the prompt has {limit + 1} positions; expected at most {limit}"):
        language.trace(language.prompt([PROMPT]), too_long)


def test_trace_stores_only_the_requested_stages(language: LanguageModel) -> None:
    assert list(traced(language, PROMPT, "layers.1")) == ["llm.layers.1"]
    assert list(traced(language, PROMPT, "embeddings")) == ["llm.embeddings"]


def test_arbitrary_prompt_embeddings_are_accepted(language: LanguageModel, network: Any) -> None:
    """The speech families pass embeddings that are no rows of the table."""
    prompt = language.prompt([PROMPT])
    doubled: Merged[np.ndarray] = replace(prompt, embeddings=prompt.embeddings * 2)
    ids = [int(step[0]) for step in language.generate(doubled, Decoding((), max_new_tokens=6))]
    with torch.inference_mode():
        expected = network.generate(
            inputs_embeds=torch.from_numpy(doubled.embeddings), max_new_tokens=6, do_sample=False, pad_token_id=511
        )
    assert ids == expected[0].tolist()


def test_embeddings_are_rows_of_the_table(language: LanguageModel, network: Any) -> None:
    ids = np.array([[1, 500], [7, 7]])
    table = network.get_input_embeddings().weight.detach().numpy()
    np.testing.assert_array_equal(language.embed(ids), table[ids])


# Options and batches.


@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty` with `inputs_embeds`")  # the test compares this case
@pytest.mark.parametrize(
    "options", [{"repetition_penalty": 1.7}, {"min_new_tokens": 9}, {"repetition_penalty": 3.0, "min_new_tokens": 5}]
)
def test_generation_options_give_the_ids_of_transformers(
    language: LanguageModel, network: Any, options: dict[str, Any]
) -> None:
    stops = STOPS if "min_new_tokens" in options else ()
    ids = generated(language, [PROMPT], Decoding(stops, max_new_tokens=24, **options))[0]
    assert ids == reference(network, PROMPT, stops, **options)
    assert ids != generated(language, [PROMPT], Decoding(stops, max_new_tokens=24))[0]


def test_draws_are_repeatable_and_differ_by_seed(language: LanguageModel) -> None:
    draws = [
        generated(language, ROWS, Decoding((), max_new_tokens=12, temperature=1.0, seed=seed)) for seed in (1, 2, 1)
    ]
    assert draws[0] == draws[2] != draws[1]


@pytest.mark.parametrize("case", ["qwen3", "half of qwen2"])
def test_a_batch_of_mixed_lengths_equals_one_at_a_time(models: dict[str, tuple[LanguageModel, Any]], case: str) -> None:
    language, network = models[case]
    batch = generated(language, ROWS, Decoding(STOPS, max_new_tokens=24))
    assert batch == [reference(network, row, STOPS) for row in ROWS]
    assert len({len(row) for row in batch}) > 1 and any(row[-1] in STOPS for row in batch)


def test_each_row_has_its_own_limit(language: LanguageModel) -> None:
    limits = np.array([3, 1, 7, 5])
    limited = generated(language, ROWS, Decoding((), max_new_tokens=limits))
    unlimited = generated(language, ROWS, Decoding((), max_new_tokens=7))
    assert limited == [row[:limit] for row, limit in zip(unlimited, limits, strict=True)]


def test_prompts_may_be_padded_on_either_side(language: LanguageModel) -> None:
    prompt = language.prompt(ROWS)
    embeddings = [
        np.roll(part, int(shift), axis=0) for part, shift in zip(prompt.embeddings, prompt.lengths, strict=True)
    ]
    mask = np.arange(prompt.attention_mask.shape[1]) < prompt.lengths[:, None]
    right_padded = Merged(np.stack(embeddings), mask, prompt.positions)
    decoding = Decoding((), max_new_tokens=6)
    ids = np.stack(list(language.generate(right_padded, decoding)), axis=1)
    assert ids.tolist() == generated(language, ROWS, decoding)


# Beam search.


def last_rows(language: LanguageModel, rows: Sequence[Sequence[int]], decoding: Decoding) -> list[list[int]]:
    *_, last = language.generate(language.prompt(rows), decoding)
    return [row[row != ENDED].tolist() for row in last]


@pytest.mark.parametrize(
    "options", [{}, {"length_penalty": 0.0, "beam_size": 5}, {"repetition_penalty": 3.0, "min_new_tokens": 4}], ids=str
)
@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty` with `inputs_embeds`")  # the test compares this case
def test_beam_search_equals_transformers(language: LanguageModel, network: Any, options: dict[str, Any]) -> None:
    arguments = {"beam_size": 3, "length_penalty": 1.0, **options}
    ids = last_rows(language, ROWS, Decoding(STOPS, max_new_tokens=np.array([20, 5, 20, 9]), **arguments))
    beam_size = arguments.pop("beam_size")
    assert ids == [
        reference(network, row, STOPS, max_new_tokens=limit, num_beams=beam_size, **arguments)
        for row, limit in zip(ROWS, (20, 5, 20, 9), strict=True)
    ]
    assert len({len(row) for row in ids}) > 1


def test_beam_search_yields_every_step_and_can_be_closed_early(language: LanguageModel) -> None:
    decoding = Decoding((), max_new_tokens=9, beam_size=3)
    tables = list(language.generate(language.prompt(ROWS[:2]), decoding))
    assert [table.shape for table in tables] == [(2, count) for count in range(1, 10)] + [(2, 9)] * 9
    assert (tables[8][1] == ENDED).all() and (tables[-1] != ENDED).all()
    steps = language.generate(language.prompt(ROWS[:2]), decoding)
    assert [next(steps).tolist() for _ in range(3)] == [table.tolist() for table in tables[:3]]
    steps.close()  # type: ignore[attr-defined]
    assert last_rows(language, ROWS[:2], decoding) == tables[-1].tolist()


def test_beam_search_beyond_its_context_room_equals_transformers(
    language: LanguageModel, network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESERVED_TOKENS", 1)
    monkeypatch.setattr(language, "_idle", None)
    ids = last_rows(language, [PROMPT * 30], Decoding((), max_new_tokens=40, beam_size=4, length_penalty=1.0))
    assert ids == [reference(network, PROMPT * 30, max_new_tokens=40, num_beams=4)]


# Consecutive and interleaved calls.


def test_context_grows_and_retains_its_contents(
    language: LanguageModel, network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESERVED_TOKENS", 1)
    monkeypatch.setattr(language, "_idle", None)
    sizes: list[int] = []
    grow = module.Context.grow

    def record_size(self: module.Context, positions: int) -> None:
        grow(self, positions)
        sizes.append(self.positions)

    monkeypatch.setattr(module.Context, "grow", record_size)
    rows = [PROMPT * 20, [9] * 30]
    decoding = Decoding((), max_new_tokens=120)
    ids = generated(language, rows, decoding)
    assert sizes[0] == STEP < sizes[-1]
    assert ids == [reference(network, row, max_new_tokens=120) for row in rows]


def test_idle_context_is_reused_without_effect_of_earlier_prompts(language: LanguageModel) -> None:
    decoding = Decoding((), max_new_tokens=8)
    expected = generated(language, [PROMPT], decoding)
    context = language._idle
    assert context is not None
    generated(language, [[1, 2, 3]], decoding)
    assert generated(language, [PROMPT], decoding) == expected and language._idle is context


def test_generation_can_be_closed_after_any_token(language: LanguageModel) -> None:
    decoding = Decoding((), max_new_tokens=20)
    expected = generated(language, [PROMPT], decoding)[0]
    steps = language.generate(language.prompt([PROMPT]), decoding)
    assert [int(next(steps)[0]) for _ in range(3)] == expected[:3]
    steps.close()  # type: ignore[attr-defined]
    assert generated(language, [PROMPT], decoding)[0] == expected


def test_two_interleaved_generations_do_not_affect_each_other(language: LanguageModel) -> None:
    decoding = Decoding((), max_new_tokens=10)
    expected = [generated(language, [row], decoding)[0] for row in ROWS[:2]]
    generations = [language.generate(language.prompt([row]), decoding) for row in ROWS[:2]]
    steps = list(zip(*generations, strict=True))
    assert [[int(step[side][0]) for step in steps] for side in (0, 1)] == expected


def test_unstarted_generation_can_be_closed(language: LanguageModel) -> None:
    language.generate(language.prompt([PROMPT]), Decoding(())).close()  # type: ignore[attr-defined]


# Bad input.


def test_prompt_of_wrong_length_or_width_raises_one_line_error(language: LanguageModel) -> None:
    with pytest.raises(BadInput, match=r"^the prompt has 257 positions; expected at most 256, the context of 0\.gguf$"):
        language.generate(language.prompt([[1] * 257]), Decoding(()))
    narrow = Merged(np.zeros((1, 2, 31), np.float32), np.ones((1, 2), bool), np.arange(2)[None])
    with pytest.raises(BadInput, match=r"^the prompt's embeddings are 31 wide; 0\.gguf takes 32$"):
        language.trace(narrow, Recorder(StageFilter()))


def test_generation_ends_at_the_context_limit(language: LanguageModel) -> None:
    assert len(generated(language, [[1] * 250], Decoding((), max_new_tokens=99))[0]) == 7


@pytest.mark.parametrize("number", [-1, 512])
def test_token_id_outside_the_vocabulary_raises_one_line_error(language: LanguageModel, number: int) -> None:
    with pytest.raises(BadInput, match=rf"^the prompt has the token id {number}; expected one below 512, the vocab"):
        language.prompt([[1, number]])


def test_configuration_of_another_model_is_refused(tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "it.gguf")
    file = read_gguf(tmp_path / "it.gguf")
    config = replace(language_config(file), layers=4)
    with pytest.raises(BadInput, match=r"^the number of layers of the language model in it\.gguf is 3; its config"):
        open_language(file, config)
