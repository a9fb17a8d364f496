"""The planted-fault study: each fault first changes the stage that its planter names, and the table is correct."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from benchmarks.faults_in_transformers import FAULTS
from benchmarks.planted_faults import judged, table
from benchmarks.planting import SEALED, SEEN, VERDICTS, Field, apart
from benchmarks.transformers_port import attending, reordered, run
from workbench.trace.read import read_trace

IDS = np.arange(3, 15)
PARTS = (
    *("input_norm", "attention.query", "attention.query_norm", "attention.key", "attention.key_norm"),
    *("attention.value", "attention.context", "attention.output", "attention.residual", "mlp_norm"),
    *("mlp.gate", "mlp.up", "mlp.activation", "mlp.down"),
)
ORDER = [
    "llm.embeddings",
    *(name for n in range(2) for name in (*(f"llm.layers.{n}.{part}" for part in PARTS), f"llm.layers.{n}")),
    *("llm.norm", "logits"),
]


@cache
def made() -> Any:
    """A port with the demo's shapes, which some faults rely on, but two layers."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
        rope_parameters={"rope_theta": 1e6, "rope_type": "default"},
        rms_norm_eps=1e-6,
        attn_implementation="eager",
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = Qwen3ForCausalLM(config).eval()
        for name, weight in model.named_parameters():
            mean, deviation = (1.0, 0.2) if weight.ndim == 1 else (0.0, 1.0 if "embed" in name else 0.09)
            torch.nn.init.normal_(weight, mean, deviation)
    return model


def port() -> Any:
    """A port to change."""
    return copy.deepcopy(made())


@pytest.fixture(scope="module")
def plain() -> dict[str, np.ndarray]:
    return run(port(), IDS)


def test_study_has_sixty_faults_and_dumps_every_stage(plain: dict[str, np.ndarray]) -> None:
    assert len(FAULTS) >= 60 and sorted(plain) == sorted(ORDER)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_first_changes_the_stage_that_its_planter_names(name: str, plain: dict[str, np.ndarray]) -> None:
    model = port()
    stage = FAULTS[name](model, 1, np.random.default_rng(5))
    faulty = run(model, IDS)
    held = [each for each in ORDER if each in faulty]  # a layer that is left out has no stages inside it
    first = next(each for each in held if apart(plain[each], faulty[each]) > 0)
    assert first == stage


def test_correct_ports_differ_only_by_rounding(plain: dict[str, np.ndarray]) -> None:
    written, shuffled = port(), reordered(port(), np.random.default_rng(1))
    for layer in written.model.layers:
        layer.self_attn.forward = attending(layer.self_attn)
    for other in (run(written, IDS), run(shuffled, IDS), run(port(), IDS, pieces=3), run(port(), IDS, padded=4)):
        assert max(apart(plain[stage], other[stage]) for stage in ORDER) < 1e-5


def test_table_counts_found_and_missed_faults_from_the_sealed_file(tmp_path: Path) -> None:
    ones = np.ones((4, 4), np.float32)
    field = Field(tmp_path)
    field.group("one", "demo", "a prompt", "*")
    for shift in (0.0, 1e-6):
        field.correct("one", "float32", "right", {"llm.norm": ones + shift, "logits": ones})
    for fault, stage, error in (("found", "llm.norm", 0.5), ("missed", "logits", 0.1), ("too small", "llm.norm", 1e-7)):
        arrays = {"llm.norm": ones, "logits": ones}
        field.faulty("one", "float32", fault, stage, {**arrays, stage: ones + error})
    field.seal({"one": "digest"})
    seen = json.loads((tmp_path / SEEN).read_text(encoding="utf-8"))
    assert len(seen["one"]["files"]) == 5 and "found" not in (tmp_path / SEEN).read_text(encoding="utf-8")
    trace = read_trace(tmp_path / seen["one"]["files"][0])
    assert trace.meta["input_digest"] == "digest" and "found" not in str(trace.meta)
    sealed = json.loads((tmp_path / SEALED).read_text(encoding="utf-8"))
    verdicts = {
        name: {
            "status": "within" if each["how"] != "found" else "beyond",
            "stage": each["stage"] if each["how"] == "found" else None,
            "hint": "it is 1.5 times the reference" if each["how"] == "found" else None,
        }
        for name, each in sealed.items()
    }
    (tmp_path / VERDICTS).write_text(json.dumps(verdicts), encoding="utf-8")
    lines = list(table({"transformers": judged(tmp_path)}))
    assert lines[2] == "| `transformers`' Qwen3 | float32 | 3 | 2 | 1 of 2 (50 %) | 1 | 2 | 0 |"
    [missed] = [line for line in lines if line.startswith("- ")]
    assert "missed at logits: not found; its error is 1.0e-01, correct ports differ by 0.0e+00" in missed
