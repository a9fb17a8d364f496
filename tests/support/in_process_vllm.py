"""vLLM's engine inside the test's own process: no processes to start, and the model can be looked at."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.runtimes.vllm.engine.forking import inspecting_here

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
PYTESTS_OWN = "PYTEST_CURRENT_TEST"  # it names the test and its phase


@contextmanager
def environment_kept() -> Iterator[None]:
    """Takes back what the block changes in the environment.

    vLLM sets variables when it starts an engine. With them, every prepared process would have to import anew.
    """
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys() - {PYTESTS_OWN}:
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if name != PYTESTS_OWN})


@contextmanager
def forking_engines() -> Iterator[None]:
    """Within the block the test's process forks an engine where a session's process would; a spawned one takes 12 s."""
    with environment_kept(), pytest.MonkeyPatch.context() as patch, inspecting_here():
        patch.setattr("workbench.runtimes.vllm.engine.engine.forks_allowed", lambda: True)
        yield


@contextmanager
def in_process_engine(directory: Path, **arguments: Any) -> Iterator[Any]:
    """A `vllm.LLM` of a directory, float32 and eager, that is gone in the end."""
    with tempfile.TemporaryDirectory(prefix="workbench-tests-") as tempdir, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", tempdir)  # vLLM leaves a file there for each engine
        patch.setattr(gc, "unfreeze", lambda: None)  # its last collections leave alone what tests have imported
        given = {
            "dtype": "float32",
            "enforce_eager": True,
            "enable_prompt_embeds": True,
            "generation_config": "vllm",
            "limit_mm_per_prompt": {"audio": 1},
            "max_num_seqs": 16,
            **arguments,
        }
        with environment_kept():
            os.environ.update(ENVIRONMENT)
            from vllm import LLM
            from vllm.distributed import cleanup_dist_env_and_memory

            with inspecting_here():
                llm = LLM(str(directory), **given)
        try:
            yield llm
        finally:
            llm.llm_engine.engine_core.shutdown()
            del llm
            cleanup_dist_env_and_memory()
            gc.collect()


def model_in(llm: Any) -> Any:
    """The network that the engine computes with."""
    return llm.apply_model(lambda model: model)[0]


def audio_prompt(ids: Sequence[int], samples: np.ndarray, name: str, **options: Any) -> dict[str, Any]:
    """A prompt with sound; under a `name` of its own nothing that vLLM has kept is used for it."""
    return {
        "prompt_token_ids": list(ids),
        "multi_modal_data": {"audio": samples},
        "multi_modal_uuids": {"audio": [name]},
        "cache_salt": name,
        "mm_processor_kwargs": options,
    }


def written(llm: Any, prompts: Sequence[Any], stop_ids: Sequence[int], max_tokens: int = 64) -> list[list[int]]:
    """The greedy ids of each prompt, all of them together, the stop id among them."""
    from vllm import SamplingParams

    params = SamplingParams(
        temperature=0, max_tokens=max_tokens, detokenize=False, ignore_eos=True, stop_token_ids=list(stop_ids)
    )
    outputs = llm.generate(list(prompts), params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]
