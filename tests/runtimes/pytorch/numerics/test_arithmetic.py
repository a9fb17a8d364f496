"""float64 sessions compute in float64 from features to tokens, and float32 sessions are unaffected by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.support.tiny_checkpoints import noise, tiny_paraformer, tiny_sensevoice
from tests.support.tiny_fireredasr import tiny_fireredasr
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from tests.support.tiny_language import random_network, tiny_language
from workbench.compare.measures import measure
from workbench.core.settings import Settings
from workbench.decoding.generation import Decoding
from workbench.families.language.directory import read_language_config
from workbench.runtimes.pytorch.language_models.language import LanguageModel, open_language
from workbench.runtimes.pytorch.numerics.arithmetic import (
    array_of,
    attention_in_steps,
    keeping_float64,
    name_of,
    network_dtype,
    widen_positions,
)
from workbench.session.protocols import Session
from workbench.trace.trace import Trace

CPU = torch.device("cpu")
KINDS = ("qwen3", "qwen2", "llama", "mistral")
WRITERS: dict[str, Callable[[Path], Path]] = {
    "sensevoice": tiny_sensevoice,
    "paraformer": tiny_paraformer,
    "funasr_nano": tiny_funasr_nano,
    "fireredasr": tiny_fireredasr,
    "causal_lm": tiny_language,
}
FAMILIES = tuple(WRITERS)
NARROW = (torch.float32, torch.bfloat16, torch.float16)
PROMPT, TOKENS = [5, 300, 17, 17, 290, 8], 8


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("float64")
    return {family: write(folder / family) for family, write in WRITERS.items()}


def open_session(family: str, directory: Path, dtype: str) -> Any:
    module = import_module(f"workbench.runtimes.pytorch.{family}")
    return module.open_session(directory, "it", Settings(threads=1, dtype=dtype))


def trace_of(session: Session, family: str, seed: int = 1) -> Trace:
    if family == "causal_lm":
        return session.trace("What is it?", max_new_tokens=TOKENS)
    limit = {"max_new_tokens": TOKENS} if family in ("funasr_nano", "fireredasr") else {}
    return session.trace(noise(2.0, seed=seed), **limit)


def networks(session: Any, family: str) -> list[nn.Module]:
    """All networks of a session."""
    if family == "causal_lm":
        return [session.writer.language.network]
    recogniser = session.recogniser
    if family in ("funasr_nano", "fireredasr"):
        return [recogniser.encoder.network.network, recogniser.language.network]
    return [recogniser.network.network]


class Narrow(TorchDispatchMode):
    """Records the operations whose result is narrower than float64."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(isinstance(output, Tensor) and output.dtype in NARROW for output in tree_leaves(result)):
            self.operations.add(str(func))
        return result


# Whole sessions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_float64_session_rounds_no_value_to_float32_between_features_and_tokens(
    checkpoints: dict[str, Path], family: str
) -> None:
    session = open_session(family, checkpoints[family], "float64")
    for network in networks(session, family):
        dtypes = {name: tensor.dtype for name, tensor in (*network.named_parameters(), *network.named_buffers())}
        assert dtypes and set(dtypes.values()) == {torch.float64}, dtypes
    with Narrow() as narrow:
        trace = trace_of(session, family)
    input_operations = {"aten.lift_fresh.default", "aten.unsqueeze.default"}  # they copy the float32 features
    assert narrow.operations <= (set() if family == "causal_lm" else input_operations)
    float32_stages = ("frontend.", "tokens.")  # in float32 for every dtype of the network
    computed = {stage: array.dtype for stage, array in trace.items() if not stage.startswith(float32_stages)}
    assert {kind for kind in computed.values() if kind.kind == "f"} == {np.dtype(np.float64)}
    assert trace.meta["dtype"] == "float64"


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_stages_differ_from_float64_by_rounding_only(checkpoints: dict[str, Path], family: str) -> None:
    single, double = (
        trace_of(open_session(family, checkpoints[family], dtype), family) for dtype in ("float32", "float64")
    )
    assert list(single) == list(double) and single.meta["dtype"] == "float32"
    for stage, exact in double.items():
        if exact.dtype.kind != "f":
            np.testing.assert_array_equal(single[stage], exact)  # tokens and text
        elif stage.startswith("frontend."):
            assert exact.dtype == np.float32 and np.array_equal(single[stage], exact)
        elif stage == "llm.embeddings" and family == "causal_lm":
            np.testing.assert_array_equal(single[stage], exact)  # rows of a table
        else:
            assert 1e-9 < measure(exact, single[stage]).relative_l2 < 1e-5, stage


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_gives_the_same_bits_with_a_session_in_float64_beside_it(
    checkpoints: dict[str, Path], family: str
) -> None:
    single = open_session(family, checkpoints[family], "float32")
    trace_before = trace_of(single, family)
    trace_of(open_session(family, checkpoints[family], "float64"), family)
    trace_after = trace_of(single, family)
    for stage, array in trace_before.items():
        assert array.dtype == trace_after[stage].dtype
        np.testing.assert_array_equal(array, trace_after[stage])


def test_a_trace_file_keeps_the_type(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    trace = trace_of(open_session("sensevoice", checkpoints["sensevoice"], "float64"), "sensevoice")
    loaded = Trace.load(trace.save(tmp_path / "it.safetensors"))
    assert loaded.meta == trace.meta and loaded.meta["dtype"] == "float64"
    for stage, array in trace.items():
        assert loaded[stage].dtype == array.dtype
        np.testing.assert_array_equal(loaded[stage], array)


# Batches equal their rows ------------------------------------------------------------------------------------------


def test_padding_does_not_change_sensevoice_outputs(checkpoints: dict[str, Path]) -> None:
    network = networks(open_session("sensevoice", checkpoints["sensevoice"], "float64"), "sensevoice")[0]
    rows, lengths = batch(560, (9, 31))
    queries = torch.tensor([[0, 1, 2, 3]] * 2)
    with torch.inference_mode():
        batched = network(rows, queries, lengths)
        for row, length in enumerate(lengths.tolist()):
            single = network(rows[row : row + 1, :length], queries[:1])[0]
            assert_close(batched[row, : 4 + length], single)


def test_padding_does_not_change_paraformer_outputs(checkpoints: dict[str, Path]) -> None:
    network: Any = networks(open_session("paraformer", checkpoints["paraformer"], "float64"), "paraformer")[0]
    rows, lengths = batch(560, (14, 31))
    with torch.inference_mode():
        encoded = network.encoder(rows, lengths)
        for row, length in enumerate(lengths.tolist()):
            assert_close(encoded[row, :length], network.encoder(rows[row : row + 1, :length])[0])
            encoded[row, length:] = 0.0  # the predictor's convolution pads a single row with zeros
        cif = network.predictor(encoded, lengths)
        logits = network.decoder(encoded, lengths, cif.embeddings, cif.counts)
        for row, length in enumerate(lengths.tolist()):
            single = network(rows[row : row + 1, :length])
            count = int(single.cif.counts[0])
            assert count == int(cif.counts[row]) > 0
            assert_close(cif.alphas[row, : length + 1], single.cif.alphas[0])
            assert_close(cif.embeddings[row, :count], single.cif.embeddings[0])
            assert_close(logits[row, :count], single.logits[0])


@pytest.mark.parametrize("family", ["funasr_nano", "fireredasr"])
def test_padding_does_not_change_audio_embeddings_or_logits(checkpoints: dict[str, Path], family: str) -> None:
    recogniser = open_session(family, checkpoints[family], "float64").recogniser
    options = recogniser.options_class()
    sounds = [noise(seconds, seed=3)[0] for seconds in (0.7, 2.3)]
    batched, counts = recogniser._prompt(sounds, options)
    merged = logits_of(recogniser.language, batched)
    for row, sound in enumerate(sounds):
        prompt, count = recogniser._prompt([sound], options)
        assert count.tolist() == [counts[row]]
        filled = int(batched.lengths[row])
        assert_close(batched.embeddings[row, -filled:], prompt.embeddings[0])
        assert_close(merged[row, -filled:], logits_of(recogniser.language, prompt)[0])


def batch(width: int, lengths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Random features [B, T, width] in float64, with noise for padding, and the lengths of the rows."""
    draw = torch.Generator().manual_seed(0)
    return torch.randn(len(lengths), max(lengths), width, generator=draw, dtype=torch.float64), torch.tensor(lengths)


def assert_close(actual: Tensor, expected: Tensor) -> None:
    assert actual.dtype == expected.dtype == torch.float64
    size = float(expected.abs().max())
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12 * size)


def logits_of(language: LanguageModel, prompt: Any) -> Tensor:
    with torch.inference_mode():
        output = language._forward(
            inputs_embeds=prompt.embeddings,
            attention_mask=torch.from_numpy(prompt.attention_mask.astype(np.int64)),
            position_ids=torch.from_numpy(prompt.positions),
        )
    logits: Tensor = output.logits
    return logits


# The language half ------------------------------------------------------------------------------------------------


class Norm(nn.Module):
    """torch's own norm, which computes in its input's type, with the weight of transformers' norm."""

    def __init__(self, original: Any):
        super().__init__()
        self.weight, self.eps = original.weight, original.variance_epsilon

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Rotary(nn.Module):
    """Rotary positions with numpy, by their definition: angles p / base^(2 i / width)."""

    def __init__(self, base: float, width: int):
        super().__init__()
        self.rates = base ** (-2.0 * np.arange(width // 2) / width)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = position_ids.numpy()[..., None] * self.rates
        channels = np.concatenate([angles, angles], axis=-1)
        return torch.from_numpy(np.cos(channels)), torch.from_numpy(np.sin(channels))


@pytest.mark.parametrize("kind", KINDS)
def test_float64_language_model_equals_transformers_with_float64_norms_and_positions(tmp_path: Path, kind: str) -> None:
    """The reference is transformers' network with float64 norms and rotary positions; its own round to float32."""
    language = open_language(read_language_config(tiny_language(tmp_path / kind, kind)), CPU, "float64")
    assert language.dtype == "float64"
    plain, exact = (random_network(kind).double().requires_grad_(False) for _ in range(2))
    config = exact.config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    exact.model.rotary_emb = Rotary(config.rope_parameters["rope_theta"], width)
    for name, module in list(exact.named_modules()):
        if type(module).__name__.endswith("RMSNorm"):
            parent, _, attribute = name.rpartition(".")
            setattr(exact.get_submodule(parent), attribute, Norm(module))
    ids = torch.tensor([PROMPT])
    with torch.inference_mode():
        expected, rounded = (network(input_ids=ids).logits for network in (exact, plain))
        actual = language._forward(input_ids=ids).logits
    assert_close(actual, expected)
    assert 1e-9 < float((rounded - expected).norm() / expected.norm()) < 1e-5


ROPES: Mapping[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}


@pytest.mark.parametrize("rope", ROPES)
def test_rates_of_rotary_positions_are_computed_in_float64(rope: str) -> None:
    parameters = {"rope_type": rope, "rope_theta": 10000.0, **ROPES[rope]}
    network = random_network("llama", rope_parameters=parameters).double()
    rates_before = network.model.rotary_emb.inv_freq.clone()
    widen_positions(network)
    rotary = network.model.rotary_emb
    assert rotary.inv_freq.dtype == torch.float64 and rotary.original_inv_freq.dtype == torch.float64
    assert not torch.equal(rotary.inv_freq, rates_before.double())
    torch.testing.assert_close(rotary.inv_freq, rates_before.double(), rtol=1e-6, atol=0)
    if rope in ("default", "linear"):
        rates = 10000.0 ** (-np.arange(0, 8, 2) / 8) / parameters.get("factor", 1.0)
        np.testing.assert_allclose(rotary.inv_freq.numpy(), rates, rtol=1e-15)


@pytest.mark.parametrize("beams", [1, 3])
def test_tokens_are_chosen_in_float64(
    checkpoints: dict[str, Path], beams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read_language_config(checkpoints["causal_lm"])
    decoding = Decoding((458,), max_new_tokens=12, beam_size=beams, repetition_penalty=1.3)
    single, double = (open_language(config, CPU, dtype) for dtype in ("float32", "float64"))
    dtypes = record_penalty_dtypes(monkeypatch)
    expected = [step.tolist() for step in single.generate(single.prompt([PROMPT]), decoding)]
    assert dtypes == {torch.float32}
    dtypes.clear()
    assert [step.tolist() for step in double.generate(double.prompt([PROMPT]), decoding)] == expected
    assert dtypes == {torch.float64}


def record_penalty_dtypes(monkeypatch: pytest.MonkeyPatch) -> set[torch.dtype]:
    from transformers import RepetitionPenaltyLogitsProcessor

    dtypes: set[torch.dtype] = set()
    call = RepetitionPenaltyLogitsProcessor.__call__

    def record_dtype(self: Any, input_ids: Any, scores: Any) -> Any:
        dtypes.add(scores.dtype)
        return call(self, input_ids, scores)

    monkeypatch.setattr(RepetitionPenaltyLogitsProcessor, "__call__", record_dtype)
    return dtypes


# The parts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_casts_to_float32_give_float64_in_a_float64_session(dtype: torch.dtype) -> None:
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    x = torch.ones(3, dtype=dtype)
    with keeping_float64(dtype):
        casts = {
            "to": x.to(torch.float32),
            "named": x.to(dtype=torch.float32),
            "float": x.float(),
            "made": torch.arange(3, dtype=torch.float),
            "softmax": nn.functional.softmax(x, dim=-1, dtype=torch.float32),
        }
        integers = x.to(torch.int64)
    assert {name: tensor.dtype for name, tensor in casts.items()} == dict.fromkeys(casts, expected)
    assert integers.dtype == torch.int64 and x.float().dtype == torch.float32


def test_encoder_dtype_is_float32_unless_float64_is_set() -> None:
    dtypes = {name: network_dtype(name, stepwise=False) for name in ("auto", "float32", "bfloat16", "float16")}
    assert dtypes == dict.fromkeys(dtypes, torch.float32)
    assert network_dtype("float64", stepwise=False) == torch.float64 and name_of(torch.float64) == "float64"


def test_stepwise_encoder_uses_the_requested_half_precision() -> None:
    dtypes = {name: network_dtype(name, stepwise=True) for name in ("bfloat16", "float16", "float32", "float64")}
    assert dtypes == {name: getattr(torch, name) for name in dtypes}
    values = torch.tensor([1.0, 2.5])
    assert array_of(values.to(torch.bfloat16)).dtype == "float32" and array_of(values.half()).dtype == "float16"
    assert array_of(values.to(torch.bfloat16)).tolist() == [1.0, 2.5]


@pytest.mark.parametrize("mask", [None, "hidden", "added"])
def test_stepwise_attention_equals_fused_attention_and_rounds_scores_in_bfloat16(mask: str | None) -> None:
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 9, 8, generator=draw) for _ in range(3))
    attention_mask = None
    if mask is not None:
        visible = torch.rand(1, 1, 9, 9, generator=draw) > 0.2
        attention_mask = visible if mask == "hidden" else torch.where(visible, 0.0, -torch.inf)
    attention = partial(nn.functional.scaled_dot_product_attention, attn_mask=attention_mask, scale=0.5)
    exact = attention(q, k, v)
    with attention_in_steps(torch.float32):
        assert torch.equal(attention(q, k, v), exact)
    with attention_in_steps(torch.bfloat16):
        torch.testing.assert_close(attention(q, k, v), exact)  # equal up to rounding
        added = attention_mask if attention_mask is None or mask == "hidden" else attention_mask.bfloat16()
        rounded = nn.functional.scaled_dot_product_attention(*(x.bfloat16() for x in (8 * q, k, v)), added, scale=0.5)
    scores = ((8 * q).bfloat16() @ k.bfloat16().transpose(2, 3)) * 0.5
    if added is not None:
        scores = scores.masked_fill(~added, -torch.inf) if mask == "hidden" else scores + added
    assert torch.equal(rounded, scores.softmax(-1) @ v.bfloat16())
