"""Isolated runs of dumps: the reference is computed from the dump's own stages, for any stage names and layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.fake_lab import FakeRegistry
from tests.support.faults_judged import SAMPLE
from tests.support.networks import computed
from workbench import Registry
from workbench.compare import read_mapping
from workbench.parity_lab import ParityRun, run_parity
from workbench.parity_lab.judgement.dumps import BeforeRounding, substitutes
from workbench.parity_lab.report.stage_detail import stage_details
from workbench.trace.trace import Trace

FAULTS = {
    "encoder.layers.1": lambda x: 1.01 * x,
    "encoder.layers.4": lambda x: x + 0.05 * x.std(),
    "encoder.layers.6": lambda x: x[:, ::-1],
}
MAPPING = """
[stages]
"encoder.layers.{n}" = { from = "blk.{n}", transpose = true }
"logits" = { from = "last_logits", reference_rows = [-1] }
"""


def dump(folder: Path, dtype: str = "float32", meta: dict[str, Any] | None = None, **faults: Any) -> tuple[str, Any]:
    """Returns a port's dump (other names, transposed layers, the logits' last row alone) and its mapping."""
    trace = computed(dtype, faults={**faults}, reverse=True)
    arrays = {}
    for stage, array in trace.items():
        if stage.startswith("encoder.layers."):
            arrays[stage.replace("encoder.layers.", "blk.")] = np.ascontiguousarray(array.T)
        elif stage == "logits":
            arrays["last_logits"] = array[-1:]
        elif stage not in ("tokens", "text"):
            arrays[stage] = array
    path = Trace(arrays, {"dtype": dtype} if meta is None else meta).save(folder / "port.safetensors")
    (folder / "names.toml").write_text(MAPPING, encoding="utf-8")
    return str(path), read_mapping(folder / "names.toml")


def parity(fakes: FakeRegistry, *candidates: str, **options: Any) -> ParityRun:
    return run_parity(fakes, "tiny", "talk.wav", candidates=candidates, isolated=True, **options)  # type: ignore[arg-type]


def test_simultaneous_faults_in_a_dump_are_named_exactly(fakes: FakeRegistry, tmp_path: Path) -> None:
    path, mapping = dump(tmp_path, **FAULTS)
    with parity(fakes, path, mapping=mapping) as run:
        [outcome] = run.outcomes
        assert outcome.status == "beyond" and outcome.verdict and outcome.comparison and outcome.noise
        assert outcome.verdict.faulty_stages == tuple(FAULTS)
        assert outcome.sentence.startswith(
            "Computed from the candidate's own inputs, encoder.layers.1 is the first stage"
        )
        assert outcome.noise.isolated and [each.stage for each in outcome.noise.bugs] == list(FAULTS)
        assert run.exact and run.exact.trace.meta["isolated"] and not run.no_exact
        assert run.mode.startswith("Isolated: every stage of the reference is computed from the candidate's own inputs")
        assert outcome.compared_reference and outcome.compared_reference.trace.meta["isolated"]
        assert [settings.get("dtype", "float32") for _, settings, _ in fakes.traced] == [
            "float32",
            "float32",
            "float64",
        ]
        assert "worst element" in "".join(stage_details(run, outcome, "encoder.layers.4"))


def test_dump_of_a_correct_port_is_within_tolerance(fakes: FakeRegistry, tmp_path: Path) -> None:
    path, mapping = dump(tmp_path)
    with parity(fakes, path, mapping=mapping) as run:
        assert run.status == 0 and "Arithmetic noise" in run.outcomes[0].sentence
    path, mapping = dump(tmp_path, "float16")
    with parity(fakes, path, mapping=mapping) as run:
        assert run.status == 0 and run.outcomes[0].noise and not run.outcomes[0].no_peer
        assert [dict(settings).get("dtype") for _, settings, _ in fakes.traced][-1] == "float16"


def test_runtime_uses_reference_inputs_and_dump_uses_its_own_inputs(fakes: FakeRegistry, tmp_path: Path) -> None:
    path, mapping = dump(tmp_path, **{"encoder.layers.2": FAULTS["encoder.layers.1"]})
    fakes.faults["gguf"] = {"encoder.layers.5": lambda x: 1.01 * x}
    with parity(fakes, "gguf", path, mapping=mapping) as run:
        on_gguf, from_dump = run.outcomes
        assert on_gguf.comparison and on_gguf.comparison.inputs == "reference"
        assert from_dump.comparison and from_dump.comparison.inputs == "candidate"
        assert on_gguf.verdict and on_gguf.verdict.faulty_stages == ("encoder.layers.5",)
        assert from_dump.verdict and from_dump.verdict.faulty_stages == ("encoder.layers.2",)
        assert "; for a dump, from the dump's own inputs" in run.mode


def test_isolated_dump_runs_without_float64_and_needs_a_reference_that_accepts_stages(
    fakes: FakeRegistry, tmp_path: Path
) -> None:
    path, mapping = dump(tmp_path, **FAULTS)
    with parity(fakes, path, mapping=mapping, exact=False) as run:
        assert run.outcomes[0].status == "beyond" and run.exact is None and run.outcomes[0].noise is None
    with parity(fakes, path, mapping=mapping, reference="vllm") as run:
        assert run.outcomes[0].status == "unavailable" and "takes no stages of another trace" in run.outcomes[0].reason


def test_dump_without_usable_stages_is_unusable_with_a_reason(fakes: FakeRegistry, tmp_path: Path) -> None:
    path = str(Trace({"enc.1": np.ones((3, 4))}, {"dtype": "float32"}).save(tmp_path / "port.safetensors"))
    with parity(fakes, path) as run:
        assert run.outcomes[0].status == "unusable"
        assert "no stage of the dump has the name and the shape of one of the reference's (it has enc.1)" in (
            run.outcomes[0].reason
        )


def test_reference_continues_only_from_complete_stages_with_matching_shapes() -> None:
    reference = Trace(
        {
            "frontend.lfr": np.zeros((9, 4)),
            "encoder.layers.0": np.zeros((9, 6)),
            "encoder.layers.1": np.zeros((9, 6)),
            "logits": np.zeros((9, 5)),
            "text": np.array("one"),
        },
        {},
    )
    same = {
        "encoder.layers.0": np.ones((9, 6)),
        "encoder.layers.1": np.ones((9, 7)),
        "logits": np.ones((1, 5)),
        "more": np.ones(3),
        "text": np.array("two"),
    }
    assert list(substitutes(Trace(same, {"cuts": {"logits": {"rows": [-1]}}}), reference)) == ["encoder.layers.0"]
    longer = {"frontend.lfr": np.ones((8, 4)), "encoder.layers.0": np.ones((8, 6)), "encoder.layers.1": np.ones((9, 6))}
    assert list(substitutes(Trace(longer, {}), reference)) == list(longer)


def test_front_end_of_a_dump_in_16_bits_is_taken_as_before_its_rounding() -> None:
    features = np.random.default_rng(1).standard_normal((50, 8)).astype(np.float16)
    lfr = features.astype(np.float32) + np.float32(1e-5)
    layer = features * 2
    stages = {"frontend.lfr": lfr, "frontend.features": features, "encoder.layers.0": layer}
    before = BeforeRounding(Trace(stages, {}), "float16")
    assert np.array_equal(before["frontend.lfr"], lfr) and np.array_equal(before["encoder.layers.0"], layer)
    changed = before["frontend.features"]
    assert changed.dtype == np.float32 and np.array_equal(changed.astype(np.float16), features)
    assert 1e-4 < np.linalg.norm(changed - features) / np.linalg.norm(features) < 3e-4


def test_correct_port_that_writes_16_bits_has_no_fault_in_cmvn(tmp_path: Path) -> None:
    """CMVN amplifies the rounding of the stacked frames that the port wrote, but did not compute from."""
    stages = "frontend.*,encoder.input,encoder.layers.0"
    with Registry(isolate=False) as registry:
        with registry.open("demo/paraformer") as session:
            trace = session.trace(SAMPLE, stages=stages)
        port = Trace({name: array.astype(np.float16) for name, array in trace.items()}, {})
        path = str(port.save(tmp_path / "port.safetensors"))
        with run_parity(registry, "demo/paraformer", SAMPLE, candidates=[path], isolated=True, stages=stages) as run:
            assert run.outcomes[0].status == "within", run.outcomes[0].sentence
