"""A parity run: which sides are computed, in which order, and what happens on missing parts, failures and stops."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.fake_lab import FakeRegistry, dies, waits
from tests.support.networks import STAGES, computed
from workbench.core.errors import BadInput, SessionDied, Unavailable
from workbench.core.progress import report
from workbench.parity_lab import ParityRun, run_parity
from workbench.prepared import pool as prepared
from workbench.prepared.pool import PreparedProcesses
from workbench.system.tempdirs import OWNER


@pytest.fixture(autouse=True)
def tempdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "tempdir"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr("workbench.system.tempdirs.MAX_FOLDER_CHARACTERS", 1000)
    return folder


def parity(fakes: FakeRegistry, *candidates: str, source: str = "talk.wav", **options: Any) -> ParityRun:
    return run_parity(fakes, "tiny", source, candidates=candidates, **options)  # type: ignore[arg-type]


def test_candidates_are_judged_by_the_tolerance_of_their_precision(fakes: FakeRegistry) -> None:
    fakes.faults["vllm"] = {"encoder.layers.3": lambda x: 1.01 * x}
    with parity(fakes, "gguf:f32", "gguf:q4_0", "vllm") as run:
        assert [each.status for each in run.outcomes] == ["within", "within", "beyond"]
        assert [each.comparison.tolerances.preset.name for each in run.outcomes if each.comparison] == [
            "f32",
            "q4",
            "f32",
        ]
        verdict = run["vllm"].verdict
        assert verdict and verdict.first_divergent == "encoder.layers.3"
        assert "A bug, not noise: at encoder.layers.3" in run["vllm"].sentence
        assert "Arithmetic noise" in run["gguf:f32"].sentence
        assert run.status == 1
        with pytest.raises(KeyError, match="there are gguf:f32"):
            run["gguf"]


def test_sessions_of_a_run_come_from_prepared_processes(fakes: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = PreparedProcesses()
    monkeypatch.setattr(prepared, "PREPARED", pool)
    were_on: list[bool] = []
    for switch, expected in (("", True), ("0", False)):
        monkeypatch.setenv(prepared.SWITCH, switch)
        were_on.clear()
        parity(fakes, "gguf", on_progress=lambda *_: were_on.append(pool.on)).close()
        assert set(were_on) == {expected} and not pool.on


def test_prepared_processes_that_were_given_up_stay_so(fakes: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = PreparedProcesses()
    monkeypatch.setattr(prepared, "PREPARED", pool)
    pool.use()
    monkeypatch.setattr(pool, "use", lambda: pytest.fail("they would start again"))
    parity(fakes, "gguf").close()
    assert pool.on
    pool.close()


def test_repr_of_a_run_and_of_an_outcome_is_one_line(fakes: FakeRegistry) -> None:
    with parity(fakes, "gguf:f32", "vllm") as run:
        assert repr(run) == "<ParityRun of tiny on talk.wav: pytorch against gguf:f32 within, vllm within>"
        assert repr(run["vllm"]).startswith("<Outcome of vllm: within, ") and len(repr(run["vllm"])) < 250


def test_trace_reports_the_reason_for_waiting(fakes: FakeRegistry) -> None:
    activities: list[str] = []
    waiting_reported = threading.Event()

    def on_progress(_: float, activity: str) -> None:
        activities.append(activity)
        if "waiting" in activity:
            waiting_reported.set()

    def wait(_: Any) -> None:
        for _ in range(1000):
            report(0.0, "waiting for another run of this model")
            if waiting_reported.wait(0.05):
                return
        raise AssertionError("nobody was told")

    fakes.acts["gguf"] = wait
    with parity(fakes, "gguf", on_progress=on_progress) as run:
        assert run.outcomes[0].status == "within"
    assert any(each.startswith("gguf: waiting for another run of this model, ") for each in activities)


def test_single_session_is_open_at_a_time_and_the_reference_uses_float32(fakes: FakeRegistry) -> None:
    parity(fakes, "gguf:f16", "pytorch", settings={"threads": 2, "device": "cpu"}).close()
    assert fakes.most_open == 1 and fakes.open_now == []
    assert [(runtime, settings) for runtime, settings, _ in fakes.traced] == [
        ("pytorch", {"dtype": "float32", "threads": 2, "device": "cpu"}),
        ("pytorch", {"dtype": "float64", "threads": 2, "device": "cpu"}),
        ("gguf", {"quantization": "f16", "threads": 2}),
        ("pytorch", {"threads": 2, "device": "cpu"}),
    ]


def test_options_apply_to_all_sides_and_side_options_override_them(fakes: FakeRegistry) -> None:
    with parity(fakes, "pytorch+cmvn=off", options={"dither": 1.0, "cmvn": "checkpoint"}, exact=False) as run:
        assert [options for _, _, options in fakes.traced] == [
            {"dither": 1.0, "cmvn": "checkpoint"},
            {"dither": 1.0, "cmvn": "off"},
        ]
        verdict = run.outcomes[0].verdict
        assert verdict and verdict.first_divergent == "frontend.fbank"
        assert run.outcomes[0].noise is None and run.no_exact == ""


def test_float64_reference_uses_the_options_of_the_reference(fakes: FakeRegistry) -> None:
    with parity(fakes, "gguf", reference="pytorch+cmvn=off") as run:
        assert [options for _, _, options in fakes.traced] == [{"cmvn": "off"}, {"cmvn": "off"}, {}]
        assert run.exact is not None


def test_only_the_requested_stages_are_traced_and_compared(fakes: FakeRegistry) -> None:
    with parity(fakes, "gguf", stages="encoder.layers.*") as run:
        expected = [stage for stage in STAGES if stage.startswith("encoder.layers.")]
        assert list(run.reference.trace) == expected
        comparison = run.outcomes[0].comparison
        assert comparison and [each.stage for each in comparison.stages] == expected


def test_custom_preset_and_rules_are_applied(fakes: FakeRegistry) -> None:
    with parity(fakes, "gguf:q4_0", preset="f32", exact=False) as run:
        assert run.status == 1
    loose = "relative_l2=9,peak=99,cosine_distance=2,kl=99,top1=0,token_errors=9,text_errors=9"
    with parity(fakes, "gguf:q4_0", preset="f32", rules=[loose], exact=False) as run:
        assert run.status == 0


def test_missing_or_failed_candidates_are_reported_and_the_others_continue(fakes: FakeRegistry) -> None:
    fakes.missing["vllm"] = "vLLM is not installed"
    with parity(fakes, "vllm", "gguf") as run:
        assert [(each.status, each.reason) for each in run.outcomes] == [
            ("unavailable", "vLLM is not installed"),
            ("within", ""),
        ]
        assert run.status == 0
    with parity(fakes, "vllm", "vllm") as run:
        assert run.status == 3
    fakes.acts["gguf"] = dies
    with parity(fakes, "gguf", "vllm", "pytorch") as run:
        assert [each.status for each in run.outcomes] == ["unusable", "unavailable", "within"]
        assert run.outcomes[0].sentence == "the process of tiny ended" and run.status == 2


def test_run_without_float64_still_compares(fakes: FakeRegistry) -> None:
    fakes.missing["float64"] = "not enough memory for float64"
    with parity(fakes, "gguf") as run:
        assert (run.exact, run.no_exact, run.status) == (None, "not enough memory for float64", 0)
        assert run.outcomes[0].no_noise == run.no_exact and run.outcomes[0].noise is None


@pytest.mark.parametrize("runtime", ["pytorch", "vllm"])
def test_missing_or_failed_reference_ends_the_run(fakes: FakeRegistry, tempdir: Path, runtime: str) -> None:
    fakes.missing["vllm"] = "vLLM is not installed"
    fakes.acts["pytorch"] = dies
    with pytest.raises(SessionDied if runtime == "pytorch" else Unavailable):
        parity(fakes, "gguf", reference=runtime)
    assert list(tempdir.iterdir()) == [] and fakes.open_now == []


def test_saved_traces_of_other_programs_are_accepted(fakes: FakeRegistry, tmp_path: Path) -> None:
    good, other = tmp_path / "good.safetensors", tmp_path / "other.safetensors"
    computed(reverse=True).save(good)
    wrong = computed()
    wrong.meta["input_digest"] = "another"
    wrong.save(other)
    (tmp_path / "broken.npz").write_bytes(b"PK nothing")
    with parity(fakes, str(good), str(other), str(tmp_path / "broken.npz")) as run:
        assert [each.status for each in run.outcomes] == ["within", "unusable", "unusable"]
        assert "different inputs" in run.outcomes[1].reason
    with parity(fakes, str(other), force=True) as run:
        assert run.status == 0
    with parity(fakes, "gguf", reference=str(good)) as run:
        assert run.status == 0 and run.outcomes[0].noise is not None
    assert good.is_file() and other.is_file()


def test_traces_are_memory_mapped_files_until_the_run_is_closed(fakes: FakeRegistry, tempdir: Path) -> None:
    with parity(fakes, "gguf", "gguf") as run:
        [folder] = tempdir.iterdir()
        assert run.folder == folder and len([each for each in folder.iterdir() if each.name != OWNER]) == 4
        array = run.reference.trace["encoder.output"]
        base = array
        while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
            base = base.base  # type: ignore[assignment]
        assert isinstance(base, np.memmap)
    assert list(tempdir.iterdir()) == []
    run.close()


def test_traces_are_stored_in_the_keep_folder(fakes: FakeRegistry, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "traces"
    parity(fakes, "gguf:q4_0", keep=folder).close()
    assert sorted(each.name for each in folder.iterdir()) == [
        "candidate-1-gguf-q4_0.safetensors",
        "float64-pytorch-float64.safetensors",
        "reference-pytorch.safetensors",
    ]
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="not a folder to keep traces in"):
        parity(fakes, "gguf", keep=tmp_path / "file")


def test_progress_increases_from_zero_to_one(fakes: FakeRegistry) -> None:
    progress: list[tuple[float, str]] = []
    parity(fakes, "gguf", "vllm", on_progress=lambda share, activity: progress.append((share, activity))).close()
    shares = [share for share, _ in progress]
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == 1
    activities = [activity for _, activity in progress]
    for part in (
        "loading pytorch",
        "tracing pytorch:float64",
        "gguf: loading tiny",
        "comparing vllm: encoder.layers.3",
    ):
        assert any(each.startswith(part) for each in activities), part


class Stop(Exception):
    pass


@pytest.mark.parametrize("phase", ["loading pytorch:float64", "tracing gguf", "comparing gguf: encoder.layers.2"])
@pytest.mark.parametrize("keeps_files", [False, True])
def test_stopped_run_leaves_no_files_or_sessions(
    fakes: FakeRegistry, tempdir: Path, tmp_path: Path, phase: str, keeps_files: bool
) -> None:
    def stop(share: float, activity: str) -> None:
        if activity.startswith(phase):
            raise Stop

    folder = tmp_path / "keep" if keeps_files else None
    with pytest.raises(Stop):
        parity(fakes, "gguf", on_progress=stop, keep=folder)
    assert list(tempdir.iterdir()) == [] and fakes.open_now == []
    assert folder is None or list(folder.iterdir()) == []


def test_long_trace_is_cancelled_when_the_run_stops(fakes: FakeRegistry) -> None:
    fakes.acts["gguf"] = waits

    def stop(share: float, activity: str) -> None:
        if activity.startswith("tracing gguf, "):
            raise Stop

    started = time.monotonic()
    with pytest.raises(Stop):
        parity(fakes, "gguf", on_progress=stop)
    assert fakes.cancelled == 1 and fakes.open_now == [] and time.monotonic() - started < 30


def test_rule_matching_no_stage_is_refused_before_a_candidate_is_computed(fakes: FakeRegistry) -> None:
    with pytest.raises(
        BadInput, match=r"'encoder\.layer\.\*' matches no compared stage; the nearest stages are encoder\.layers\."
    ):
        parity(fakes, "gguf", rules=["encoder.layer.*:peak=1"])
    assert [runtime for runtime, _, _ in fakes.traced] == ["pytorch"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": "ggml"}, "neither a runtime"),
        ({"reference": "torch"}, "neither a runtime"),
        ({"stages": " "}, "pattern is empty"),
        ({"options": {"cmnv": "off"}}, "did you mean cmvn"),
        ({"preset": "f31"}, "no preset"),
        ({"rules": ["kl"]}, "not understood"),
        ({"candidates": "gguf,gguf:q99"}, "^gguf:q99: quantization is 'q99'; expected one of auto, f32"),
    ],
)
def test_bad_input_is_refused_before_any_model_is_loaded(
    fakes: FakeRegistry, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        run_parity(fakes, "tiny", "talk.wav", **{"candidates": "gguf", **options})  # type: ignore[arg-type]
    assert fakes.traced == []


def test_run_json_contains_everything_except_the_arrays(fakes: FakeRegistry) -> None:
    fakes.missing["vllm"] = "vLLM is not installed"
    with parity(fakes, "gguf", "vllm") as run:
        document = json.loads(run.to_json())
        assert document["reference"]["name"] == "pytorch" and document["reference"]["input_digest"] == "a1b2"
        assert (document["status"], document["float64"]) == (0, True)
        one, other = document["candidates"]
        assert other == {"name": "vllm", "status": "unavailable", "sentence": "vLLM is not installed"}
        assert [each["stage"] for each in one["comparison"]["stages"]] == [
            "frontend.fbank",
            "prompt.tokens",
            *STAGES[2:],
        ]
        assert (
            "error_by_channel"
            in json.loads(run.to_json(profiles=True))["candidates"][0]["comparison"]["stages"][2]["numbers"]
        )
