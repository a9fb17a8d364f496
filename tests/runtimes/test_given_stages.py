"""Traces that continue from given stages, for every family on PyTorch and ggml.

The dependencies between stages are written down here independently, from the order of computation in the papers.
"""

from __future__ import annotations

import importlib
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.tiny_checkpoints import noise, tiny_paraformer, tiny_sensevoice
from tests.support.tiny_fireredasr import tiny_fireredasr
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from tests.support.tiny_language import tiny_language
from workbench.conversion import writer
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.session.protocols import Session
from workbench.trace.trace import Trace

SOUND = noise(1.0)
FAMILIES: dict[str, tuple[Callable[..., Path], Any]] = {
    "sensevoice": (tiny_sensevoice, SOUND),
    "paraformer": (tiny_paraformer, SOUND),
    "funasr_nano": (tiny_funasr_nano, SOUND),
    "fireredasr": (tiny_fireredasr, SOUND),
    "causal_lm": (partial(tiny_language, max_position_embeddings=1024), "three seven one"),
}
RUNTIMES = ("pytorch", "gguf")
OUTPUT_STAGES = {"tokens", "text", "tokens.alternatives", "tokens.logprobs"}


def open_tiny_session(family: str, runtime: str, directory: Path, dtype: str = "float32") -> Session:
    """A session of a checkpoint; on ggml, of the file converted from it."""
    if runtime == "gguf":
        plans = importlib.import_module(f"workbench.conversion.{family}").plans(directory, "workbench")
        [directory] = writer.write(plans, "f32", directory.with_suffix(".gguf"))
    settings = Settings(threads=1) if runtime == "gguf" else Settings(threads=1, dtype=dtype)
    module = importlib.import_module(f"workbench.runtimes.{runtime}.{family}")
    session: Session = module.open_session(directory, "tiny", settings)
    return session


@pytest.fixture(scope="module", params=[(family, runtime) for family in FAMILIES for runtime in RUNTIMES], ids="-".join)
def traced_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Session, Any, Trace]]:
    """A session, an input, and the full trace of that input."""
    family, runtime = request.param
    write, source = FAMILIES[family]
    with closing(open_tiny_session(family, runtime, write(tmp_path_factory.mktemp(family) / "it"))) as session:
        yield session, source, session.trace(source)


def change_stage(trace: Trace, stage: str) -> Trace:
    """The trace with other values at a stage, of the same shape."""
    draw = np.random.default_rng(3)
    value = trace[stage]
    if stage == "prompt.tokens":
        changed = np.where(np.arange(len(value)) == len(value) - 1, value[0], value)
    elif stage == "predictor.alphas":
        changed = value * np.float32(1.05)
    else:
        changed = value + (draw.standard_normal(value.shape) * max(value.std(), 0.1)).astype(value.dtype)
    return Trace({**trace, stage: changed}, trace.meta)


def difference(expected: np.ndarray, actual: np.ndarray) -> float:
    """Relative L2 distance; for texts and unequal shapes 1 if they differ, otherwise 0."""
    if expected.dtype.kind == "U" or expected.shape != actual.shape:
        return float(expected.shape != actual.shape or expected != actual)
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(a), 1e-30))


def followers(stage: str, stages: list[str]) -> set[str]:
    """The stages that a network computes directly from a stage."""
    if part := re.fullmatch(r"(encoder\.layers\.[0-9]+)\.(fsmn|attention|convolution)", stage):
        return {part[1], *([f"{part[1]}.convolution"] if part[2] == "attention" else [])} & set(stages)
    if stage in ("ctc.posteriors", "prompt.text"):
        return set()
    if stage == "logits":
        return {"ctc.posteriors", "tokens", "text"}
    if stage == "encoder.output" and "predictor.alphas" in stages:
        attending = {name for name in stages if name.startswith("decoder.layers.")}
        return {"predictor.alphas", "predictor.embeddings", *attending}
    if stage == "prompt.tokens":
        return {"llm.embeddings"}
    main = [name for name in stages if not re.search(r"\.(fsmn|attention|convolution)$|^prompt\.|^ctc\.", name)]
    later_stages = main[main.index(stage) + 1 :]
    return {
        name for name in stages if later_stages and (name == later_stages[0] or name.startswith(f"{later_stages[0]}."))
    } - OUTPUT_STAGES


def test_trace_from_all_its_own_stages_gives_the_same_stages(
    traced_session: tuple[Session, Any, Trace], tmp_path: Path
) -> None:
    session, source, full_trace = traced_session
    repeated = session.trace(source, given=full_trace.save(tmp_path / "whole.safetensors"))
    assert repeated.meta["isolated"] is True and "isolated" not in full_trace.meta
    # Generated text depends on several stages; the text of a CTC or CIF path depends on the logits alone.
    generates_text = any(stage.startswith("llm.") for stage in full_trace)
    assert set(full_trace) - set(repeated) == (OUTPUT_STAGES if generates_text else set())
    assert {stage: difference(full_trace[stage], repeated[stage]) for stage in repeated} == pytest.approx(
        dict.fromkeys(repeated, 0.0), abs=1e-6
    )


def test_changed_stage_changes_only_the_stages_computed_from_it(traced_session: tuple[Session, Any, Trace]) -> None:
    session, source, full_trace = traced_session
    stages = [stage for stage in full_trace if full_trace[stage].dtype.kind != "U" and stage not in OUTPUT_STAGES]
    for stage in stages:
        actual = session.trace(source, given=change_stage(full_trace, stage))
        differing = {name for name in actual if difference(full_trace[name], actual[name]) > 1e-6}
        expected = followers(stage, list(full_trace)) & set(actual)
        assert differing <= expected, stage
        assert differing or not expected - OUTPUT_STAGES, f"nothing follows {stage}"


def test_trace_accepts_a_subset_of_requested_and_given_stages(traced_session: tuple[Session, Any, Trace]) -> None:
    """Stages that are neither requested nor given are computed as usual."""
    session, source, full_trace = traced_session
    layer = max(stage for stage in full_trace if re.fullmatch(r"(encoder|llm)\.layers\.[0-9]+", stage))
    previous_stage = next(stage for stage in full_trace if layer in followers(stage, list(full_trace)) and "." in stage)
    changed = change_stage(full_trace, previous_stage)
    from_one_stage = session.trace(source, layer, given=Trace({previous_stage: changed[previous_stage]}, {}))
    from_all_stages = session.trace(source, layer, given=changed)
    assert list(from_one_stage) == [layer]
    assert difference(full_trace[layer], from_all_stages[layer]) > 1e-3
    parts = [stage for stage in full_trace if stage.startswith(f"{layer}.")]
    # Without traced parts inside it, the layer is the same from one given stage as from all.
    assert parts or difference(from_all_stages[layer], from_one_stage[layer]) < 1e-6


def test_stages_of_another_shape_or_input_are_refused(traced_session: tuple[Session, Any, Trace]) -> None:
    session, source, full_trace = traced_session
    layer = max(stage for stage in full_trace if re.fullmatch(r"(encoder|llm)\.layers\.[0-9]+", stage))
    for invalid in (full_trace[layer][:-1], full_trace[layer][:, :-1], full_trace[layer].astype("U4")):
        with pytest.raises(BadInput, match=rf"^{re.escape(layer)} of the trace to compute from is "):
            session.trace(source, given=Trace({**full_trace, layer: invalid}, full_trace.meta))
    with pytest.raises(BadInput, match="has another input"):
        session.trace(source, given=Trace(dict(full_trace), {"input_digest": "0" * 16}))
    with pytest.raises(BadInput, match=r"none of the stages of this pass \(it has blk.0\)"):
        session.trace(source, given=Trace({"blk.0": full_trace[layer]}, {}))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Trace]]:
    """Returns the checkpoint of a family and its trace on PyTorch, computed at the first call."""

    @cache
    def compute(family: str) -> tuple[Path, Trace]:
        write, source = FAMILIES[family]
        directory = write(tmp_path_factory.mktemp(family) / "it")
        with closing(open_tiny_session(family, "pytorch", directory)) as session:
            return directory, session.trace(source, "*.*,logits,tokens,text")

    return compute


@pytest.mark.parametrize("family", FAMILIES)
def test_float64_stages_from_given_float32_stages_differ_by_one_rounding(
    healthy: Callable[[str], tuple[Path, Trace]], family: str
) -> None:
    directory, full_trace = healthy(family)
    source = FAMILIES[family][1]
    with closing(open_tiny_session(family, "pytorch", directory, "float64")) as session:
        exact, isolated = session.trace(source, "*.*,logits"), session.trace(source, "*.*,logits", given=full_trace)
    assert {isolated[stage].dtype for stage in isolated if ".layers." in stage} == {np.dtype(np.float64)}
    differences = {
        stage: difference(isolated[stage], full_trace[stage]) for stage in isolated if isolated[stage].dtype.kind == "f"
    }
    assert max(differences.values()) < 3e-6
    # The rounding of one stage is at most that of all stages up to it.
    last = max(stage for stage in isolated if ".layers." in stage and stage.count(".") == 2)
    assert 0 < differences[last] <= difference(exact[last], full_trace[last])


FAULTS = {
    "sensevoice": {
        "encoder.encoders.0.feed_forward.w_2.bias": "encoder.layers.1",
        "encoder.encoders0.0.self_attn.linear_out.bias": "encoder.layers.0.attention",
        "encoder.tp_norm.bias": "encoder.output",
        "ctc.ctc_lo.bias": "logits",
    },
    "paraformer": {
        "predictor.cif_output.bias": "predictor.alphas",
        "decoder.decoders.0.feed_forward.norm.bias": "decoder.layers.0",
    },
    "funasr_nano": {
        "audio_adaptor.blocks.1.norm2.bias": "adaptor.layers.1",
        "llm.model.layers.1.mlp.down_proj.weight": "llm.layers.1",
        "llm.model.norm.weight": "llm.norm",
    },
}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(("family", "tensor"), [(family, tensor) for family in FAULTS for tensor in FAULTS[family]])
def test_changed_weight_changes_only_its_own_stage_in_an_isolated_trace(
    healthy: Callable[[str], tuple[Path, Trace]], family: str, tensor: str, runtime: str, tmp_path: Path
) -> None:
    checkpoint, full_trace = healthy(family)
    directory, source = tmp_path / "it", FAMILIES[family][1]
    shutil.copytree(checkpoint, directory)
    weights = torch.load(directory / "model.pt", weights_only=True)
    assert tensor in weights
    draw = torch.Generator().manual_seed(1)
    weights[tensor] = weights[tensor] + 0.3 * torch.randn(weights[tensor].shape, generator=draw)
    torch.save(weights, directory / "model.pt")
    with closing(open_tiny_session(family, runtime, directory)) as session:
        actual = session.trace(source, given=full_trace)
    differences = {
        stage: difference(full_trace[stage], actual[stage]) for stage in actual if stage not in OUTPUT_STAGES
    }
    assert {stage for stage, error in differences.items() if error > 1e-4} == {FAULTS[family][tensor]}
