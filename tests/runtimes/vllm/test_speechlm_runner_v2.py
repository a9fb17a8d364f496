"""A tiny SpeechLM on vLLM's model runner V2 (used on GPUs) with interpreted Triton, compared with PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")
pytest.importorskip("triton", reason="needs Triton, which the lock leaves out on a processor")

from tests.support.tiny_speechlm import tiny_speechlm
from workbench.conversion.vllm_checkpoint.checkpoint import plan_of
from workbench.conversion.vllm_checkpoint.directory import write_directory
from workbench.core.settings import Settings
from workbench.runtimes.pytorch.speechlm import open_session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
SUPPORT = ROOT / "tests" / "support"
LIMITS = {"max_text_tokens": 5, "max_audio_rows": 9}
CASES = [
    [f"say {n}", {**LIMITS, "modalities": modalities, "temperature": temperature, "cfg": cfg, "seed": n}]
    for n, (modalities, temperature, cfg) in enumerate(
        [("text_audio", 0.0, 3.0), ("audio", 0.9, 2.0), ("auto", 0.9, 1.0), ("text", 0.0, 1.0), ("audio", 0.9, 1.0)]
    )
]


def test_answers_equal_pytorch_alone_and_after_preemption(tmp_path: Path) -> None:
    directory = tiny_speechlm(tmp_path / "tiny", language={"head_dim": 32}).directory
    write_directory(plan_of(directory, "speechlm"), tmp_path / "served")
    (tmp_path / "cases.json").write_text(json.dumps(CASES))
    paths = [str(SUPPORT / "interpreted_triton"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "TRITON_INTERPRET": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "1",
    }
    command = [sys.executable, str(SUPPORT / "speaks_on_runner_v2.py"), str(tmp_path / "served")]
    process = subprocess.run(
        [*command, str(tmp_path / "cases.json")], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-3000:]
    *answers, remaining = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    reference = open_session(directory, "tiny", Settings(threads=1, dtype="float32"))
    expected = []
    for messages, options in CASES:
        answer = reference.converse(messages, **options)
        streams = None if answer.streams is None else answer.streams.tolist()
        expected.append({"ids": list(answer.token_ids), "streams": streams})
    assert answers == expected * 2
    assert remaining["unfinished"] == 0
