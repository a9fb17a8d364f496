"""The demo SpeechLM in user sessions: vLLM gives the same streams as PyTorch, in greedy decoding and in parallel."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm")

from workbench.registry.registry import Registry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("shared_cache")]

SAMPLES = sorted((Path(__file__).parents[3] / "assets" / "samples").glob("*.wav"))
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_text_tokens": 20, "max_audio_rows": 60}


def test_parallel_answers_of_the_demo_equal_pytorch() -> None:
    recording = {"role": "user", "content": [{"type": "audio", "audio": str(SAMPLES[0])}]}
    cases: list[tuple[Any, str, float]] = [
        ("say three seven one", "audio", 3.0),
        ("say three seven one", "text_audio", 1.0),
        ([recording], "text", 1.0),
        ([recording], "text_audio", 1.0),
    ]
    with (
        Registry() as registry,
        registry.open("demo/speechlm", "vllm", threads=1, kv_gigabytes=0.1) as engine,
        registry.open("demo/speechlm", "pytorch", threads=1) as reference,
        ThreadPoolExecutor(len(cases)) as pool,
    ):
        answers = list(
            pool.map(lambda case: engine.converse(case[0], modalities=case[1], cfg=case[2], **GREEDY), cases)
        )
        for (messages, modalities, cfg), actual in zip(cases, answers):
            expected = reference.converse(messages, modalities=modalities, cfg=cfg, **GREEDY)
            assert actual.token_ids == expected.token_ids and actual.finish == expected.finish
            assert (actual.streams is None) == (expected.streams is None) == (modalities == "text")
            if actual.streams is not None:
                np.testing.assert_array_equal(actual.streams, expected.streams)
