"""What a parity run computes from: the reference's own stages in an isolated run, prompts, and embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.parity_lab.test_run import parity
from tests.support.fake_lab import FakeRegistry
from tests.support.networks import computed
from workbench.compare import read_mapping
from workbench.core.errors import BadInput
from workbench.trace.trace import Trace


def test_isolated_sides_are_computed_from_the_reference_inputs(fakes: FakeRegistry) -> None:
    fakes.faults["gguf"] = {stage: lambda x: 1.01 * x for stage in ("encoder.layers.3", "encoder.layers.6")}
    with parity(fakes, "gguf", "pytorch", isolated=True, stages="encoder.*") as run:
        (first, none), *rest = fakes.asked
        assert set(first.split(",")) == {"*.*", "logits", "encoder.*"} and none is None
        inputs = {path for _, path in rest}
        assert [stages for stages, _ in rest] == ["encoder.*"] * 3 and len(inputs) == 1
        assert set(Trace.load(inputs.pop())) >= {"frontend.fbank", "prompt.tokens", "encoder.output", "logits"}
        verdict, comparison = run["gguf"].verdict, run["gguf"].comparison
        assert verdict and comparison and comparison.isolated
        assert verdict.faulty_stages == ("encoder.layers.3", "encoder.layers.6")
        assert [stage.stage for stage in comparison.stages if not stage.passes] == list(verdict.faulty_stages)
        assert verdict.sentence.startswith(
            "Computed from the reference's own inputs, encoder.layers.3 is the first stage beyond "
        )
        errors = [(stage.own, stage.growth) for stage in comparison.stages]
        assert errors == [(stage.numbers.relative_l2, None) for stage in comparison.stages if stage.numbers]
        assert run["pytorch"].sentence.startswith("Identical: 10 stages, each computed from the reference's own inputs")
        assert run.exact and run.exact.trace.meta["isolated"] and "isolated" not in run.reference.trace.meta
        assert run.isolated and run.to_dict()["isolated"] is True and run.mode.startswith("Isolated: ")


def test_isolated_stage_error_is_smaller_than_the_accumulated_error(fakes: FakeRegistry) -> None:
    ends = {}
    for isolated in (True, False):
        with parity(fakes, "gguf:f16", isolated=isolated) as run:
            comparison = run.outcomes[0].comparison
            assert comparison and comparison.isolated is isolated and run.mode.startswith("Isolated") is isolated
            ends[isolated] = comparison["encoder.layers.7"].numbers
    assert ends[True] and ends[False] and ends[True].relative_l2 < ends[False].relative_l2 / 2


def test_isolated_run_accepts_a_trace_as_reference_but_not_as_candidate(fakes: FakeRegistry, tmp_path: Path) -> None:
    trace = computed()
    arrays = {stage.replace("encoder.layers.", "blk."): array for stage, array in trace.items()}
    path = Trace(arrays, {"dtype": "float32"}).save(tmp_path / "theirs.safetensors")
    (tmp_path / "names.toml").write_text('[stages]\n"encoder.layers.{n}" = "blk.{n}"\n')
    mapping = read_mapping(tmp_path / "names.toml")
    with parity(fakes, "gguf", str(path), reference=str(path), mapping=mapping, isolated=True) as run:
        on_gguf, from_file = run.outcomes
        assert on_gguf.status == "within" and on_gguf.comparison and on_gguf.comparison.isolated
        assert "encoder.layers.7" in {each.stage for each in on_gguf.comparison.stages}
        assert (
            from_file.status == "unusable"
            and "the reference is a trace, which cannot be computed from" in from_file.reason
        )
        assert run.exact and run.exact.trace.meta["isolated"]
    with parity(fakes, str(path), mapping=mapping) as run:
        assert run.outcomes[0].status == "within"


def test_isolated_run_accepts_a_trace_with_substituted_stages(fakes: FakeRegistry, tmp_path: Path) -> None:
    with parity(fakes, "gguf", isolated=True) as run:
        own = run.outcomes[0].computed
        assert own and own.trace.meta["isolated"]
        path = own.trace.save(tmp_path / "alone.safetensors")
    with parity(fakes, str(path), isolated=True) as run:
        outcome = run.outcomes[0]
        assert outcome.status == "within" and outcome.comparison and outcome.comparison.isolated and outcome.noise


def test_isolated_run_does_not_load_a_runtime_without_stage_substitution(fakes: FakeRegistry) -> None:
    with parity(fakes, "vllm", "gguf", isolated=True) as run:
        assert [each.status for each in run.outcomes] == ["unavailable", "within"]
        assert run["vllm"].sentence.startswith("vLLM goes through all layers by itself and takes no stages of another")
    assert "vllm" not in {runtime for runtime, _, _ in fakes.traced}
    with parity(fakes, "gguf", reference="vllm", isolated=True) as run:
        assert run.outcomes[0].status == "within"


def test_text_prompt_is_never_read_as_a_path(
    fakes: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "secret").touch()
    monkeypatch.chdir(tmp_path)
    fakes.family = "causal_lm"
    with parity(fakes, "gguf", source="folder/secret") as run:
        assert run.source == "folder/secret"  # does not reveal whether such a file exists
    with pytest.raises(BadInput, match=r"'talk\.wav' is the name of a recording, and tiny continues a text"):
        parity(fakes, "gguf")
    fakes.family = "sensevoice"
    with parity(fakes, "gguf", source="folder/talk.wav") as run:
        assert run.source == "talk.wav"


def test_embeddings_are_passed_to_every_prompt_and_refused_for_recordings(fakes: FakeRegistry) -> None:
    probe = np.ones((3, 8), np.float32)
    with pytest.raises(BadInput, match="tiny takes a recording"):
        parity(fakes, "gguf", embeddings=[probe])
    fakes.family = "causal_lm"
    with parity(fakes, "gguf", source="say", embeddings=[probe]):
        assert len(fakes.embeddings) == 3  # of the reference, float64 and the candidate
        assert all((embedding.values == probe).all() for [embedding] in fakes.embeddings)
    with pytest.raises(BadInput, match="embedding 1 "):
        parity(fakes, "gguf", source="say", embeddings=[np.ones(3)])
