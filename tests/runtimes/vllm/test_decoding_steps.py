"""Traces of decoding steps in vLLM: on a small model with vLLM's interfaces, and in an engine with faults."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.runtimes.vllm.capture.test_hooks import PROMPT, reference_stages, stages
from tests.runtimes.vllm.small_runner import WORDS, Runner
from workbench.runtimes.vllm.capture.hooks import Hooks
from workbench.runtimes.vllm.capture.rows import Capture, Captures, FollowedIds
from workbench.trace.steps import ForcedDecoding
from workbench.trace.trace import StageFilter, Trace

IDS = (6, 7, 8)


class SamplingRunner(Runner):
    """A runner that samples the most likely token."""

    def _sample(self, logits: torch.Tensor, metadata: Any) -> list[int]:
        return logits.argmax(-1).tolist()


def runner_with_capture(steps: tuple[int, ...], pattern: str = "*") -> tuple[SamplingRunner, Hooks]:
    """A runner with a capture of the request `a`, which is forced to generate IDS."""
    runner, captures = SamplingRunner(), Captures()
    captures.add(1, Capture([pattern], FollowedIds(IDS, steps)))
    runner.add("a", PROMPT, generated=IDS, capture=1)
    runner.add("other", [1, 1, 1, 1])
    return runner, Hooks(runner, captures, stores_arrays=True)


def test_step_stages_are_the_rows_after_the_prompt() -> None:
    runner, hooks = runner_with_capture((1, 3), "*")
    hooks._store_cache = lambda *_: None  # type: ignore[method-assign]  # the small model has no cache
    runner.step(("other", 0, 2), ("a", 0, 5))
    for position in (5, 6, 7):
        runner.step(("a", position, position + 1), ("other", 2, 3))
    expected = reference_stages(runner.model, [*PROMPT, *IDS])
    actual = stages(hooks)
    assert set(actual) == {f"steps.{step}.{stage}" for step in (1, 3) for stage in expected}
    for (step, row), (stage, values) in itertools.product(((1, 5), (3, 7)), expected.items()):
        np.testing.assert_allclose(actual[f"steps.{step}.{stage}"], values[row : row + 1], atol=1e-6)


def test_step_recomputed_after_preemption_is_stored_only_once() -> None:
    runner, hooks = runner_with_capture((1, 2), "llm.norm")
    runner.step(("a", 0, 5))
    runner.step(("a", 5, 6))
    first_capture = hooks.captures.get(1).stages()["steps.1.llm.norm"].copy()  # type: ignore[union-attr]
    with torch.no_grad():
        runner.model.model.norm.weight.mul_(2)  # type: ignore[union-attr]
    runner.step(("a", 0, 3))  # preempted: all positions are computed again
    runner.step(("a", 3, 7))
    actual = stages(hooks)
    assert np.array_equal(actual["steps.1.llm.norm"], first_capture)
    expected = reference_stages(runner.model, [*PROMPT, *IDS])["llm.norm"][6:7]
    np.testing.assert_allclose(actual["steps.2.llm.norm"], expected, atol=1e-6)


def test_only_the_followed_request_is_forced_to_the_given_token_ids() -> None:
    runner, hooks = runner_with_capture((1,), "logits")
    logits = torch.zeros(2, WORDS)
    logits[:, 2] = 1
    sampled = []
    for start, stop in ((0, 3), (3, 5), (5, 6), (6, 7)):
        runner.step(("other", 0, 1), ("a", start, stop))
        sampled.append(runner._sample(logits.clone(), None))
    assert sampled == [
        [2, 2],
        [2, 6],
        [2, 7],
        [2, 8],
    ]  # the first step is part of the prompt, so nothing is forced
    hooks.remove()
    assert runner._sample(logits, None) == [2, 2] and "_sample" not in vars(runner)


def test_incomplete_step_capture_reports_the_missing_step() -> None:
    runner, hooks = runner_with_capture((1, 3), "llm.norm")
    capture = hooks.captures.get(1)
    assert capture is not None and capture.failure_reason() == "no request has carried the number of this capture"
    runner.step(("a", 0, 6))
    assert capture.failure_reason() == "the request ended before step 3 of its decoding"


# A real engine.


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A small language model in vLLM's engine, and on PyTorch in float32 and float64."""
    pytest.importorskip("vllm")
    from tests.support.in_process_vllm import in_process_engine
    from tests.support.tiny_language import tiny_language
    from workbench.families.language.directory import read_language_config
    from workbench.runtimes.pytorch.language_models.language import open_language
    from workbench.runtimes.vllm.engine.engine import EXTENSION

    directory = tiny_language(tmp_path_factory.mktemp("steps") / "qwen3", head_dim=32, hidden_size=64)
    config, cpu = read_language_config(directory), torch.device("cpu")
    references = [open_language(config, cpu, dtype) for dtype in ("float32", "float64")]
    small = {"max_model_len": 256, "worker_extension_cls": EXTENSION, "limit_mm_per_prompt": None}
    with in_process_engine(directory, **small) as llm:
        yield llm, references


LONG_PROMPT = [5, 300, 17, 17, 290, 8, 44, 91, 300, 2, 71, 66, 5, 9, 410, 33] * 3
TOKENS = [7, 41, 300, 7, 2]
INSIDE = "*,llm.layers.*.*"
_numbers = itertools.count(1)


def on_torch(language: Any, dtype: str) -> Trace:
    forced = ForcedDecoding(TOKENS, range(1, 5), StageFilter(INSIDE))
    language.follow(language.prompt([LONG_PROMPT]), forced)
    return Trace(forced.recorder.stages, {"dtype": dtype, "input_digest": "a", **forced.meta()})


def in_engine(llm: Any) -> Trace:
    from workbench.decoding.generation import Decoding
    from workbench.runtimes.vllm.capture.rows import capturing, read_capture
    from workbench.runtimes.vllm.requests.sampling import sampling_params

    def call(method: str, *arguments: Any) -> Any:
        return llm.collective_rpc(method, args=arguments)[0]

    number = next(_numbers)
    with capturing(call, number, INSIDE.split(","), FollowedIds(tuple(TOKENS[:4]), (1, 2, 3, 4))):
        params = sampling_params(Decoding((), max_new_tokens=5), 0, number)
        [output] = llm.generate([{"prompt_token_ids": LONG_PROMPT, "cache_salt": str(number)}], params, use_tqdm=False)
        assert list(output.outputs[0].token_ids)[:4] == TOKENS[:4]
        arrays = read_capture(call, number)
    return Trace(
        arrays, {"dtype": "float32", "input_digest": "a", "steps": {"traced": [1, 2, 3, 4], "followed": TOKENS}}
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_engine_trace_is_within_tolerance_and_injected_faults_are_named(engine: Any) -> None:
    from tests.support.faults_in_decoding_on_vllm import FAULTS, planted
    from tests.support.in_process_vllm import model_in
    from workbench.compare import compare, judge, noise_or_bug

    llm, references = engine
    reference, exact = (on_torch(language, dtype) for language, dtype in zip(references, ("float32", "float64")))
    clean = in_engine(llm)
    verdict = judge(compare(reference, clean), noise_or_bug(reference, clean, exact))
    assert verdict.within, verdict.sentence
    assert {stage for stage in reference if "cache" in stage} <= set(clean)
    layers = model_in(llm).model.layers
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    for fault, (outer, inside) in FAULTS.items():
        with planted(fault, layers, runner.input_batch.block_table[0]):
            faulty = in_engine(llm)
        for pattern, expected in (("steps.*.llm.layers.?,steps.*.logits", outer), (INSIDE, inside)):
            verdict = judge(compare(reference, faulty, stages=pattern), noise_or_bug(reference, faulty, exact, pattern))
            assert verdict.faulty_stage == (expected or None), f"{fault}: {verdict.sentence}"
