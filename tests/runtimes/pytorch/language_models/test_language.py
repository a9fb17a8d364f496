"""The generation loop against transformers' generate, batches against single prompts, traced stages against a plain
forward pass, and errors for damaged language-model directories.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.tiny_language import change_json, tiny_language
from workbench.core.errors import BadInput
from workbench.decoding.alternatives import AlternativesRecorder
from workbench.decoding.generation import ENDED, Decoding
from workbench.embeddings.merge import Merged
from workbench.families.language.directory import read_language_config
from workbench.runtimes.pytorch.language_models.language import LanguageModel, language_dtype, open_language
from workbench.runtimes.pytorch.numerics.arithmetic import keeping_float64
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

CPU = torch.device("cpu")
KINDS = ("qwen3", "qwen2", "llama", "mistral")
PROMPT = [5, 300, 17, 17, 290, 8]
ROWS = [PROMPT, [9, 9], [400, 3, 271, 33, 61, 12, 250, 7, 7, 90], [1]]
STOPS = tuple(range(0, 456, 9))  # many, so that rows end at different steps


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("language")
    return {kind: tiny_language(folder / kind, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def language(directories: dict[str, Path]) -> LanguageModel:
    return open_model(directories["qwen3"])


def open_model(directory: Path, dtype: str = "float32") -> LanguageModel:
    return open_language(read_language_config(directory), CPU, dtype)


def generate(language: LanguageModel, rows: Sequence[Sequence[int]], decoding: Decoding) -> list[list[int]]:
    """The ids of every row, including its stop token."""
    steps = list(language.generate(language.prompt(rows), decoding))
    columns = np.stack(steps, axis=1)
    assert columns.shape[0] == len(rows)
    for row in columns:  # an ended row stays ended
        ended = np.flatnonzero(row == ENDED)
        assert len(ended) == 0 or (row[ended[0] :] == ENDED).all()
    return [row[row != ENDED].tolist() for row in columns]


def reference(language: LanguageModel, rows: Sequence[Sequence[int]], stops: Sequence[int], **options: Any) -> Any:
    """The ids that transformers' generate gives for the same embeddings and padding."""
    prompt = language.prompt(rows)
    network = language.network
    return network.generate(
        inputs_embeds=prompt.embeddings,
        attention_mask=torch.from_numpy(prompt.attention_mask.astype(np.int64)),
        eos_token_id=list(stops) or None,
        pad_token_id=511,
        **{"do_sample": False, "max_new_tokens": 24, **options},
    )


def record_alternatives(language: Any, rows: Sequence[Sequence[int]], decoding: Decoding) -> list[AlternativesRecorder]:
    """The alternatives recorded for each row during generation."""
    recorders = [AlternativesRecorder(row) for row in range(len(rows))]

    def watch(row: int, ids: np.ndarray, logprobs: np.ndarray) -> None:
        for recorder in recorders:
            recorder(row, ids, logprobs)

    counts = np.zeros(len(rows), int)
    for step in language.generate(language.prompt(rows), decoding, watch):
        counts += step != ENDED
        assert [len(recorder.steps) for recorder in recorders] == counts.tolist(), (
            "recorded before the token is yielded, for active rows only"
        )
    return recorders


def trim(ids: torch.Tensor, stops: Sequence[int]) -> list[list[int]]:
    rows = []
    for row in ids.tolist():
        ends = [index for index, number in enumerate(row) if number in stops]
        rows.append(row[: ends[0] + 1] if ends else row)
    return rows


# Greedy.


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_ids_equal_those_of_transformers(directories: dict[str, Path], kind: str) -> None:
    language = open_model(directories[kind])
    output = generate(language, [PROMPT], Decoding((), max_new_tokens=24))
    assert output == reference(language, [PROMPT], ()).tolist()
    assert len(set(output[0])) > 5, "a model that repeats one token would prove nothing"


def test_a_batch_of_mixed_lengths_equals_one_at_a_time(language: LanguageModel) -> None:
    decoding = Decoding(STOPS, max_new_tokens=24)
    batch = generate(language, ROWS, decoding)
    assert batch == [generate(language, [row], decoding)[0] for row in ROWS]
    assert batch == trim(reference(language, ROWS, STOPS), STOPS)
    assert len({len(row) for row in batch}) > 1 and any(row[-1] in STOPS for row in batch)


def test_alternatives_are_the_top_logprobs_of_the_unmodified_logits(language: LanguageModel) -> None:
    """For every row of a batch until it ends; the options do not change the log-probabilities."""
    expected = reference(language, ROWS, STOPS, return_dict_in_generate=True, output_logits=True)
    logprobs = [step.double().log_softmax(-1) for step in expected.logits]
    for row, recorder in enumerate(
        record_alternatives(language, ROWS, Decoding(STOPS, max_new_tokens=24, alternatives=5))
    ):
        for step, (ids, values) in enumerate(recorder.steps):
            best = logprobs[step][row].topk(5)
            np.testing.assert_allclose(values, best.values.numpy(), atol=1e-5)
            assert ids.tolist() == best.indices.tolist()
    sampled = Decoding((), max_new_tokens=1, alternatives=5, temperature=9.0, top_k=2, repetition_penalty=3.0)
    [(ids, values)] = record_alternatives(language, [PROMPT], sampled)[0].steps
    np.testing.assert_allclose(values, logprobs[0][0].topk(5).values.numpy(), atol=1e-5)


def test_alternatives_are_recorded_only_on_request_and_never_with_beams(language: LanguageModel) -> None:
    assert count_recorded_steps(language, Decoding((), max_new_tokens=2)) == 0
    assert len(list(language.generate(language.prompt([PROMPT]), Decoding((), max_new_tokens=2, alternatives=5)))) == 2
    with pytest.raises(BadInput, match=r"^alternatives is 2 and beam_size 3"):
        language.generate(language.prompt([PROMPT]), Decoding((), beam_size=3, alternatives=2), AlternativesRecorder())


def count_recorded_steps(language: LanguageModel, decoding: Decoding) -> int:
    recorder = AlternativesRecorder()
    list(language.generate(language.prompt([PROMPT]), decoding, recorder))
    return len(recorder.steps)


def test_each_row_has_its_own_limit(language: LanguageModel) -> None:
    limits = np.array([3, 1, 7, 5])
    limited = generate(language, ROWS, Decoding((), max_new_tokens=limits))
    unlimited = generate(language, ROWS, Decoding((), max_new_tokens=7))
    assert limited == [row[:limit] for row, limit in zip(unlimited, limits, strict=True)]


def test_tokens_are_yielded_one_forward_pass_at_a_time(language: LanguageModel) -> None:
    passes: list[int] = []
    hook = language.network.model.register_forward_hook(lambda *_: passes.append(1))
    try:
        steps = language.generate(language.prompt([PROMPT]), Decoding((), max_new_tokens=10))
        for count in (1, 2, 3):
            next(steps)
            assert len(passes) == count
        steps.close()  # type: ignore[attr-defined]
        assert len(passes) == 3
    finally:
        hook.remove()


def test_prompts_are_left_padded_with_masked_zero_embeddings(language: LanguageModel) -> None:
    prompt = language.prompt(ROWS)
    assert prompt.attention_mask.sum(axis=1).tolist() == [len(row) for row in ROWS]
    for row, mask, positions, embeddings in zip(
        ROWS, prompt.attention_mask, prompt.positions, prompt.embeddings, strict=True
    ):
        assert positions[mask].tolist() == list(range(len(row))) and mask[-1]
        assert torch.equal(embeddings[torch.from_numpy(mask)], language.embed(np.array([row]))[0])
        assert not embeddings[torch.from_numpy(~mask)].any()


# Options.


@pytest.mark.parametrize(
    ("decoding", "options"),
    [
        ({"repetition_penalty": 1.7}, {"repetition_penalty": 1.7}),
        ({"min_new_tokens": 9}, {"min_new_tokens": 9}),
        ({"temperature": 1.0}, {"do_sample": True, "temperature": 1.0, "top_k": 0}),
        ({"temperature": 0.6}, {"do_sample": True, "temperature": 0.6, "top_k": 0}),
        ({"temperature": 1.5, "top_k": 7}, {"do_sample": True, "temperature": 1.5, "top_k": 7}),
        ({"temperature": 1.5, "top_p": 0.8}, {"do_sample": True, "temperature": 1.5, "top_k": 0, "top_p": 0.8}),
        (
            {"temperature": 2.0, "top_k": 40, "top_p": 0.9, "repetition_penalty": 1.3, "min_new_tokens": 6},
            {
                "do_sample": True,
                "temperature": 2.0,
                "top_k": 40,
                "top_p": 0.9,
                "repetition_penalty": 1.3,
                "min_new_tokens": 6,
            },
        ),
    ],
)
def test_decoding_options_give_the_same_tokens_as_transformers(
    language: LanguageModel, decoding: dict[str, Any], options: dict[str, Any]
) -> None:
    for seed in (1, 2):
        output = generate(language, [PROMPT], Decoding(STOPS, max_new_tokens=24, seed=seed, **decoding))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            expected = reference(language, [PROMPT], STOPS, **options)
        assert output == trim(expected, STOPS)


def test_decoding_options_change_the_tokens(language: LanguageModel) -> None:
    plain = generate(language, [PROMPT], Decoding((), max_new_tokens=24))
    for changed in ({"repetition_penalty": 1.7}, {"temperature": 1.0}):
        assert generate(language, [PROMPT], Decoding((), max_new_tokens=24, **changed)) != plain  # type: ignore[arg-type]


def test_draws_are_repeatable_by_their_seed(language: LanguageModel) -> None:
    def draw(seed: int) -> list[list[int]]:
        torch.manual_seed(99)  # the global generator has no effect and stays unchanged
        state = torch.random.get_rng_state()
        tokens = generate(language, ROWS, Decoding((), max_new_tokens=12, temperature=1.0, seed=seed))
        assert torch.equal(torch.random.get_rng_state(), state)
        return tokens

    assert draw(1) == draw(1) != draw(2)


# Stages.


@pytest.mark.parametrize("kind", KINDS)
def test_traced_stages_equal_a_plain_forward_pass(directories: dict[str, Path], kind: str) -> None:
    language = open_model(directories[kind])
    recorder = Recorder(StageFilter())
    language.trace(language.prompt([PROMPT]), recorder)
    with torch.inference_mode():
        plain = language.network(torch.tensor([PROMPT]), output_hidden_states=True)
    layers = [f"llm.layers.{number}" for number in range(language.config.layers)]
    assert list(recorder.stages) == ["llm.embeddings", *layers, "llm.norm", "logits"]
    np.testing.assert_array_equal(recorder.stages["logits"], plain.logits[0].numpy())
    # transformers returns the input of each layer, and last the output of the norm.
    entering = [recorder.stages[stage] for stage in ("llm.embeddings", *layers[:-1])]
    for actual, expected in zip((*entering, recorder.stages["llm.norm"]), plain.hidden_states, strict=True):
        np.testing.assert_array_equal(actual, expected[0].numpy())
    norm = language.network.model.norm(torch.from_numpy(recorder.stages[layers[-1]]))
    np.testing.assert_allclose(recorder.stages["llm.norm"], norm.numpy(), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_layer_continues_from_the_given_stage_before_it(
    directories: dict[str, Path], kind: str, dtype: str
) -> None:
    """The given stages are of a longer prompt; the reference is each layer by itself."""
    language = open_model(directories[kind], dtype)
    body, length = language.network.model, 11
    names = ["llm.embeddings", *(f"llm.layers.{n}" for n in range(len(body.layers))), "llm.norm", "logits"]
    draw = np.random.default_rng(2)
    full_recorder = Recorder(StageFilter())
    language.trace(language.prompt([PROMPT + PROMPT[:5]]), full_recorder)
    given_stages = {name: draw.standard_normal(full_recorder.stages[name].shape, np.float32) for name in names}
    recorder = Recorder(StageFilter(), given_stages)
    language.trace(language.prompt([PROMPT]), recorder)
    assert list(recorder.stages) == names and len(recorder.stages["llm.embeddings"]) == len(PROMPT)
    positions = torch.arange(length)[None]
    mask = torch.full((length, length), -torch.inf).triu(1)[None, None].to(language.network.dtype)
    parts = [
        *(
            lambda x, layer=layer: _output(layer(x, attention_mask=mask, position_embeddings=turns, use_cache=False))
            for layer in body.layers
        ),
        body.norm,
        language.network.lm_head,
    ]
    with torch.inference_mode(), keeping_float64(language.network.dtype):
        for part, previous, stage in zip(parts, names, names[1:]):
            x = torch.from_numpy(given_stages[previous])[None].to(language.network.dtype)
            turns = body.rotary_emb(x, positions)
            expected = part(x)[0].double().numpy()
            error = np.linalg.norm(recorder.stages[stage] - expected) / np.linalg.norm(expected)
            assert error < {"float32": 2e-6, "float64": 1e-14, "bfloat16": 2e-2}[dtype], stage


def _output(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, tuple) else result


def test_an_id_outside_the_table_is_refused(language: LanguageModel) -> None:
    rows = language.network.get_input_embeddings().weight.shape[0]
    for ids in ([[0, rows]], [[-1, 3]]):
        with pytest.raises(BadInput, match=f"expected 0 to {rows - 1}"):
            language.embed(np.array(ids))


def test_trace_removes_its_forward_hooks(language: LanguageModel) -> None:
    language.trace(language.prompt([PROMPT]), Recorder(StageFilter()))
    assert not any(module._forward_hooks for module in language.network.modules())


def test_generation_from_changed_prompt_embeddings_equals_transformers(language: LanguageModel) -> None:
    """The embeddings of a prompt need not come from the table, as in the speech families."""
    prompt = language.prompt([PROMPT])
    doubled: Merged[torch.Tensor] = Merged(prompt.embeddings * 2, prompt.attention_mask, prompt.positions)
    output = [step.tolist()[0] for step in language.generate(doubled, Decoding((), max_new_tokens=6))]
    expected = language.network.generate(
        inputs_embeds=doubled.embeddings, max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=511
    )
    assert output == expected[0].tolist()


# Types.


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_logits_are_close_to_float32(
    directories: dict[str, Path], language: LanguageModel, dtype: str
) -> None:
    half = open_model(directories["qwen3"], dtype)
    assert half.dtype == dtype and language.dtype == "float32"
    stages = [Recorder(lambda name: name == "logits") for _ in range(2)]
    for model, recorder in zip((language, half), stages, strict=True):
        model.trace(model.prompt([PROMPT]), recorder)
    exact, rounded = (recorder.stages["logits"].astype(np.float64) for recorder in stages)
    cosine = (exact * rounded).sum() / np.sqrt((exact**2).sum() * (rounded**2).sum())
    assert 0.99 < cosine < 1 and exact.shape == rounded.shape


@pytest.mark.parametrize(
    ("key", "stored", "expected"),
    [
        ("dtype", "bfloat16", "bfloat16"),
        ("torch_dtype", "float16", "float16"),
        ("dtype", "int8", "float32"),
        ("dtype", "float64", "float32"),
    ],
)
def test_auto_dtype_is_read_from_the_configuration(tmp_path: Path, key: str, stored: str, expected: str) -> None:
    directory = tiny_language(tmp_path / "it")
    change_json(directory / "config.json", dtype=None, torch_dtype=None)
    assert language_dtype(directory, "auto") == "float32"
    change_json(directory / "config.json", **{key: stored})
    assert language_dtype(directory, "auto") == expected
    assert language_dtype(directory, "float16") == "float16"


# Files.


def test_shards_are_read_and_a_missing_one_is_named(tmp_path: Path, language: LanguageModel) -> None:
    directory = tiny_language(tmp_path / "it", shards=True)
    files = sorted(directory.glob("*.safetensors"))
    assert len(files) > 1
    decoding = Decoding((), max_new_tokens=8)
    assert generate(open_model(directory), [PROMPT], decoding) == generate(language, [PROMPT], decoding)
    files[-1].unlink()
    with pytest.raises(BadInput, match=r"^the language model in it cannot be loaded: .") as caught:
        open_model(directory)
    assert files[-1].name in str(caught.value)
