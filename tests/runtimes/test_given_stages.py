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
WRITTEN = {"tokens", "text", "tokens.alternatives", "tokens.logprobs"}


def opened(family: str, runtime: str, directory: Path, dtype: str = "float32") -> Session:
    """A session of a checkpoint, on ggml of the file that it is converted to."""
    if runtime == "gguf":
        plans = importlib.import_module(f"workbench.conversion.{family}").plans(directory, "workbench")
        [directory] = writer.write(plans, "f32", directory.with_suffix(".gguf"))
    how = Settings(threads=1) if runtime == "gguf" else Settings(threads=1, dtype=dtype)
    module = importlib.import_module(f"workbench.runtimes.{runtime}.{family}")
    session: Session = module.open_session(directory, "tiny", how)
    return session


@pytest.fixture(scope="module", params=[(family, runtime) for family in FAMILIES for runtime in RUNTIMES], ids="-".join)
def traced(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Session, Any, Trace]]:
    """A session, an input, and its trace of that end to end."""
    family, runtime = request.param
    write, source = FAMILIES[family]
    with closing(opened(family, runtime, write(tmp_path_factory.mktemp(family) / "it"))) as session:
        yield session, source, session.trace(source)


def changed_at(trace: Trace, stage: str) -> Trace:
    """The trace with other values at a stage, of the same shape."""
    draw = np.random.default_rng(3)
    value = trace[stage]
    if stage == "prompt.tokens":
        other = np.where(np.arange(len(value)) == len(value) - 1, value[0], value)
    elif stage == "predictor.alphas":
        other = value * np.float32(1.05)
    else:
        other = value + (draw.standard_normal(value.shape) * max(value.std(), 0.1)).astype(value.dtype)
    return Trace({**trace, stage: other}, trace.meta)


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """Relative L2; infinite for other shapes."""
    if one.dtype.kind == "U" or one.shape != other.shape:
        return float(one.shape != other.shape or one != other)
    a, b = one.astype(np.float64), other.astype(np.float64)
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(a), 1e-30))


def followers(stage: str, stages: list[str]) -> set[str]:
    """The stages that a network computes from a stage, and from nothing that comes between."""
    if part := re.fullmatch(r"(encoder\.layers\.[0-9]+)\.(fsmn|attention|convolution)", stage):
        return {part[1], *([f"{part[1]}.convolution"] if part[2] == "attention" else [])} & set(stages)
    if stage in ("ctc.posteriors", "prompt.text"):
        return set()
    if stage == "logits":
        return {"ctc.posteriors", "tokens", "text"}
    if stage == "encoder.output" and "predictor.alphas" in stages:
        attending = {each for each in stages if each.startswith("decoder.layers.")}
        return {"predictor.alphas", "predictor.embeddings", *attending}
    if stage == "prompt.tokens":
        return {"llm.embeddings"}
    main = [each for each in stages if not re.search(r"\.(fsmn|attention|convolution)$|^prompt\.|^ctc\.", each)]
    later = main[main.index(stage) + 1 :]
    return {each for each in stages if later and (each == later[0] or each.startswith(f"{later[0]}."))} - WRITTEN


def test_trace_from_all_its_own_stages_gives_the_same_stages(
    traced: tuple[Session, Any, Trace], tmp_path: Path
) -> None:
    session, source, whole = traced
    again = session.trace(source, given=whole.save(tmp_path / "whole.safetensors"))
    assert again.meta["isolated"] is True and "isolated" not in whole.meta
    # What a language model writes is not of one stage; what a path of logits gives is.
    speaks = any(stage.startswith("llm.") for stage in whole)
    assert set(whole) - set(again) == (WRITTEN if speaks else set())
    assert {stage: difference(whole[stage], again[stage]) for stage in again} == pytest.approx(
        dict.fromkeys(again, 0.0), abs=1e-6
    )


def test_changed_stage_changes_only_the_stages_computed_from_it(traced: tuple[Session, Any, Trace]) -> None:
    session, source, whole = traced
    stages = [stage for stage in whole if whole[stage].dtype.kind != "U" and stage not in WRITTEN]
    for stage in stages:
        found = session.trace(source, given=changed_at(whole, stage))
        differing = {each for each in found if difference(whole[each], found[each]) > 1e-6}
        expected = followers(stage, list(whole)) & set(found)
        assert differing <= expected, stage
        assert differing or not expected - WRITTEN, f"nothing follows {stage}"


def test_trace_accepts_a_subset_of_requested_and_given_stages(traced: tuple[Session, Any, Trace]) -> None:
    """What is neither asked for nor given goes on as ever."""
    session, source, whole = traced
    layer = max(stage for stage in whole if re.fullmatch(r"(encoder|llm)\.layers\.[0-9]+", stage))
    before = next(stage for stage in whole if layer in followers(stage, list(whole)) and "." in stage)
    other = changed_at(whole, before)
    found = session.trace(source, layer, given=Trace({before: other[before]}, {}))
    everything = session.trace(source, layer, given=other)
    assert list(found) == [layer]
    assert difference(whole[layer], everything[layer]) > 1e-3
    parts = [stage for stage in whole if stage.startswith(f"{layer}.")]
    # Without parts of its own in the way, the layer is the same from one stage as from all.
    assert parts or difference(everything[layer], found[layer]) < 1e-6


def test_stages_of_another_shape_or_input_are_refused(traced: tuple[Session, Any, Trace]) -> None:
    session, source, whole = traced
    layer = max(stage for stage in whole if re.fullmatch(r"(encoder|llm)\.layers\.[0-9]+", stage))
    for other in (whole[layer][:-1], whole[layer][:, :-1], whole[layer].astype("U4")):
        with pytest.raises(BadInput, match=rf"^{re.escape(layer)} of the trace to compute from is "):
            session.trace(source, given=Trace({**whole, layer: other}, whole.meta))
    with pytest.raises(BadInput, match="has another input"):
        session.trace(source, given=Trace(dict(whole), {"input_digest": "0" * 16}))
    with pytest.raises(BadInput, match=r"none of the stages of this pass \(it has blk.0\)"):
        session.trace(source, given=Trace({"blk.0": whole[layer]}, {}))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Trace]]:
    """Of a family a checkpoint, and its trace on PyTorch; made when it is first asked for."""

    @cache
    def made(family: str) -> tuple[Path, Trace]:
        write, source = FAMILIES[family]
        directory = write(tmp_path_factory.mktemp(family) / "it")
        with closing(opened(family, "pytorch", directory)) as session:
            return directory, session.trace(source, "*.*,logits,tokens,text")

    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_float64_stages_from_given_float32_stages_differ_by_one_rounding(
    healthy: Callable[[str], tuple[Path, Trace]], family: str
) -> None:
    directory, whole = healthy(family)
    source = FAMILIES[family][1]
    with closing(opened(family, "pytorch", directory, "float64")) as session:
        exact, alone = session.trace(source, "*.*,logits"), session.trace(source, "*.*,logits", given=whole)
    assert {alone[stage].dtype for stage in alone if ".layers." in stage} == {np.dtype(np.float64)}
    far = {stage: difference(alone[stage], whole[stage]) for stage in alone if alone[stage].dtype.kind == "f"}
    assert max(far.values()) < 3e-6
    # In all, one stage's rounding is less than that of the whole way to it.
    last = max(stage for stage in alone if ".layers." in stage and stage.count(".") == 2)
    assert 0 < far[last] <= difference(exact[last], whole[last])


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
    checkpoint, whole = healthy(family)
    directory, source = tmp_path / "it", FAMILIES[family][1]
    shutil.copytree(checkpoint, directory)
    weights = torch.load(directory / "model.pt", weights_only=True)
    assert tensor in weights
    draw = torch.Generator().manual_seed(1)
    weights[tensor] = weights[tensor] + 0.3 * torch.randn(weights[tensor].shape, generator=draw)
    torch.save(weights, directory / "model.pt")
    with closing(opened(family, runtime, directory)) as session:
        found = session.trace(source, given=whole)
    far = {stage: difference(whole[stage], found[stage]) for stage in found if stage not in WRITTEN}
    assert {stage for stage, error in far.items() if error > 1e-4} == {FAULTS[family][tensor]}
