"""Capture hooks on a small model with vLLM's interfaces."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.runtimes.vllm.small_runner import WORDS, FormalNorm, Layer, Model, Norm, Runner, WholeLayer, config
from workbench.runtimes.vllm.capture import hooks as module
from workbench.runtimes.vllm.capture.hooks import Hooks, decoder, why_not_capturing
from workbench.runtimes.vllm.capture.rows import Capture, Captures

PROMPT = [1, 2, 3, 4, 5]
STAGES = ["llm.embeddings", "llm.layers.0", "llm.layers.1", "llm.layers.2", "llm.norm", "logits"]


def runner_with_hooks(
    model: nn.Module | None = None, stores_arrays: bool = True, **patterns: str
) -> tuple[Runner, Hooks]:
    """A runner with a capture for each named request; captures are numbered from 1."""
    runner = Runner(model)
    captures = Captures()
    for number, pattern in enumerate(patterns.values(), 1):
        captures.add(number, Capture([pattern]))
    return runner, Hooks(runner, captures, stores_arrays)


def stages(hooks: Hooks, number: int = 1) -> dict[str, np.ndarray]:
    capture = hooks.captures.get(number)
    assert capture is not None
    assert not capture.failure_reason(), capture.failure_reason()
    return capture.stages()


@torch.inference_mode()
def reference_stages(model: Any, prompt: list[int]) -> dict[str, np.ndarray]:
    """The stages, computed without hooks and in-place additions."""
    stream = model.model.embed_tokens(torch.tensor(prompt))
    values = {"llm.embeddings": stream}
    for number, layer in enumerate(model.model.layers):
        stream = stream + torch.tanh(layer.linear(stream))
        values[f"llm.layers.{number}"] = stream
    values["llm.norm"] = Norm.forward(model.model.norm, stream)
    values["logits"] = model.head(values["llm.norm"])
    return {name: value.numpy() for name, value in values.items()}


def assert_close(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(actual) == [name for name in STAGES if name in actual]
    for name, array in actual.items():
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, expected[name], atol=1e-6)


@pytest.mark.parametrize("layer", [Layer, WholeLayer])
def test_captured_stages_equal_a_plain_forward_pass(layer: type[Layer]) -> None:
    runner, hooks = runner_with_hooks(Model(layer), a="*")
    runner.add("a", PROMPT, capture=1)
    runner.step(("a", 0, 5))
    actual = stages(hooks)
    assert list(actual) == STAGES
    assert_close(actual, reference_stages(runner.model, PROMPT))


def test_captures_are_correct_with_chunked_prefill_other_requests_and_preemption() -> None:
    runner, hooks = runner_with_hooks(a="*", b="llm.norm")
    runner.add("a", PROMPT, generated=[6, 7], capture=1)
    runner.add("b", [8, 7, 6], capture=2)
    runner.add("other", [1, 1, 1, 1])
    runner.add("stale", [2, 2], capture=9)  # of a capture that was dropped
    runner.step(("other", 0, 3), ("a", 0, 2))
    runner.step(("a", 2, 4), ("b", 0, 3), ("other", 3, 4))
    runner.dummy()
    runner.step(("stale", 0, 2), ("a", 4, 6))  # the last position of the prompt, and the first generated one
    runner.step(("a", 0, 3))  # the request was preempted
    runner.step(("a", 3, 7))
    assert_close(stages(hooks, 1), reference_stages(runner.model, PROMPT))
    assert_close(stages(hooks, 2), reference_stages(runner.model, [8, 7, 6]))
    assert list(stages(hooks, 2)) == ["llm.norm"]


def test_logits_are_computed_in_pieces_and_only_for_requests_that_capture_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOGIT_ROWS", 2)
    runner, hooks = runner_with_hooks(a="logits", b="llm.*")
    runner.add("a", PROMPT, generated=[6], capture=1)
    runner.add("b", PROMPT, capture=2)
    runner.step(("b", 0, 5), ("a", 0, 6))
    assert runner.model.pieces == [2, 2, 1]  # type: ignore[attr-defined]
    assert stages(hooks)["logits"].shape == (5, WORDS)
    assert_close(stages(hooks), reference_stages(runner.model, PROMPT))


def test_model_output_is_identical_with_and_without_hooks() -> None:
    runner, hooks = runner_with_hooks(a="*")
    runner.add("a", PROMPT, capture=1)
    output = runner.step(("a", 0, 5))
    hooks.remove()
    assert torch.equal(runner.step(("a", 0, 5)), output)


def test_removing_hooks_restores_model_and_runner() -> None:
    runner, hooks = runner_with_hooks(a="*")
    assert runner.model.captures is hooks.captures
    hooks.remove()
    assert runner.model.captures is None
    assert "_model_forward" not in vars(runner)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in runner.model.modules())


def test_worker_that_stores_no_stages_only_computes_logits() -> None:
    runner, hooks = runner_with_hooks(stores_arrays=False, a="*")
    runner.add("a", PROMPT, capture=1)
    runner.step(("a", 0, 5))
    assert runner.model.pieces == [5]  # type: ignore[attr-defined]
    assert stages(hooks) == {}
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in runner.model.modules())
    hooks.remove()


def test_a_failure_fails_the_capture_and_not_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, hooks = runner_with_hooks(a="*", b="llm.norm")
    runner.add("a", PROMPT, capture=1)
    runner.add("b", PROMPT, capture=2)

    def compute_logits(hidden: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("no room\nfor them")

    monkeypatch.setattr(runner.model, "compute_logits", compute_logits)
    assert len(runner.step(("a", 0, 5), ("b", 0, 5))) == 12
    failed = hooks.captures.get(1)
    assert failed is not None
    assert failed.failure_reason() == "stage logits could not be captured: no room for them"
    assert_close(stages(hooks, 2), reference_stages(runner.model, PROMPT))


def test_layer_output_pair_of_another_meaning_fails_the_capture() -> None:
    runner, hooks = runner_with_hooks(Model(Layer, FormalNorm), a="*", b="llm.embeddings")
    runner.add("a", PROMPT, capture=1)
    runner.add("b", PROMPT, capture=2)
    runner.step(("a", 0, 5), ("b", 0, 5))
    failed = hooks.captures.get(1)
    assert failed is not None
    assert failed.failure_reason().startswith("llm.layers.0 cannot be captured: this model's layers return pairs")
    assert_close(stages(hooks, 2), reference_stages(runner.model, PROMPT))


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"enforce_eager": False}, "open the model with eager execution"),
        ({"pipeline_parallel_size": 2}, "with pipeline_parallel_size over 1"),
        ({"data_parallel_size": 2}, "with data_parallel_size over 1"),
        ({"use_ubatching": True}, "overlaps two halves of a batch"),
        ({"tensor_parallel_size": 2}, ""),
        ({}, ""),
    ],
)
def test_unsupported_engine_settings_give_a_one_line_reason(changes: dict[str, Any], reason: str) -> None:
    actual = why_not_capturing(Runner(), config(**changes))
    assert reason in actual
    assert bool(actual) == bool(reason)
    assert "\n" not in actual


def test_other_runners_and_models_are_refused() -> None:
    runner_v2 = SimpleNamespace(get_model=Model)
    assert "VLLM_USE_V2_MODEL_RUNNER=0" in why_not_capturing(runner_v2, config())
    assert "Linear: its decoder layers and last norm were not found" in why_not_capturing(
        Runner(nn.Linear(2, 2)), config()
    )


class SpeechModel(nn.Module):
    """A model with a tower, which has its own layers and norm, and a language model."""

    def __init__(self) -> None:
        super().__init__()
        self.tower, self.language = Model().model, Model()


class NamedLanguageModel(SpeechModel):
    def get_language_model(self) -> nn.Module:
        return self.language


def test_the_decoder_is_that_of_the_language_model() -> None:
    model = NamedLanguageModel()
    parts = decoder(model)
    assert parts is not None
    assert parts[1] is model.language.model.norm
    assert decoder(SpeechModel()) is None
