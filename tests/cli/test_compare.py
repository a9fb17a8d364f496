"""`workbench compare`: exit status, what goes to stdout and what to stderr."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.networks import META, computed
from workbench.cli.commands import main
from workbench.trace.trace import Trace

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    computed().save("reference.safetensors")
    computed(reverse=True).save("noise.safetensors")
    computed("q8_0").save("q8_0.safetensors")
    computed("float64").save("float64.safetensors")
    computed(faults={"encoder.layers.3": lambda x: 1.01 * x}).save("fault.safetensors")


def run(capsys: Capture, *words: str) -> tuple[int, list[str], list[str]]:
    try:
        status = main(["compare", *words])
    except SystemExit as stop:
        status = int(stop.code or 0)
    out, err = capsys.readouterr()
    return status, out.splitlines(), err.splitlines()


def test_traces_within_tolerance_exit_0(capsys: Capture) -> None:
    status, out, err = run(capsys, "reference.safetensors", "noise.safetensors")
    assert status == 0 and err == []
    assert out[0].startswith("Within tolerance f32: 15 stages")
    assert "The tolerance is f32 (float32 throughout), as both traces have the dtype float32." in out


def test_traces_beyond_tolerance_exit_1_and_name_the_stage(capsys: Capture) -> None:
    status, out, err = run(capsys, "reference.safetensors", "fault.safetensors")
    assert status == 1 and err == []
    assert out[0].startswith("encoder.layers.3 is the first stage beyond tolerance f32: ")


def test_preset_follows_metadata_or_the_preset_option(capsys: Capture) -> None:
    files = ("reference.safetensors", "q8_0.safetensors")
    assert run(capsys, *files)[:2][0] == 0
    reason = "as the reference has the dtype float32 and the candidate the dtype q8_0"
    assert f"The tolerance is q8_0 (weights in blocks of 8 bits), {reason}." in run(capsys, *files)[1]
    assert run(capsys, *files, "--preset", "f32")[0] == 1
    assert run(capsys, *files, "--preset", "f32", "--stages", "frontend.*,prompt.*")[0] == 0
    assert run(capsys, *files, "--preset", "f32", "--tolerance", "relative_l2=1,peak=9,cosine_distance=1,kl=1")[0] == 0
    assert run(capsys, *files, "--tolerance", "encoder.layers.5:relative_l2=1e-5")[0] == 1


def test_json_option_prints_only_json_on_stdout(capsys: Capture) -> None:
    status, out, err = run(capsys, "reference.safetensors", "fault.safetensors", "--json")
    result = json.loads("\n".join(out))
    assert status == 1 and err == [] and result["verdict"]["first_divergent"] == "encoder.layers.3"
    _, out, _ = run(capsys, "reference.safetensors", "fault.safetensors", "--json", "--profiles")
    assert "error_by_channel" in json.loads("\n".join(out))["stages"][0]["numbers"]


def test_float64_distinguishes_noise_and_bugs(capsys: Capture) -> None:
    computed(faults={"encoder.layers.3": lambda x: x * (1 + 3e-5)}).save("bug.safetensors")
    float64 = ("--float64", "float64.safetensors")
    status, out, _ = run(capsys, "reference.safetensors", "noise.safetensors", *float64)
    assert status == 0 and out[1].startswith("Arithmetic noise: at logits")
    assert run(capsys, "reference.safetensors", "bug.safetensors")[0] == 0
    status, out, _ = run(capsys, "reference.safetensors", "bug.safetensors", *float64)
    assert status == 1 and out[2].startswith("A bug, not noise: at encoder.layers.3")


def test_half_precision_candidate_is_compared_with_the_same_precision_trace(capsys: Capture) -> None:
    computed("bfloat16").save("same_precision.safetensors")
    computed("bfloat16", reverse=True).save("port.safetensors")
    computed("bfloat16", faults={"encoder.layers.3": lambda x: 1.02 * x}).save("wrong.safetensors")
    options = ("--float64", "float64.safetensors", "--same-precision", "same_precision.safetensors")
    assert run(capsys, "reference.safetensors", "wrong.safetensors", *options[:2])[0] == 0
    status, out, _ = run(capsys, "reference.safetensors", "wrong.safetensors", *options)
    assert status == 1 and out[0].startswith("encoder.layers.3 is the first stage in error, though within ")
    status, out, _ = run(capsys, "reference.safetensors", "port.safetensors", *options)
    assert status == 0 and "; that of this model in bfloat16 is 0.0" in out[1]
    assert any("from float64: this model in bfloat16" in line for line in out)


def test_traces_of_different_inputs_need_force_and_give_a_warning(capsys: Capture) -> None:
    Trace(computed(), META | {"input_digest": "other"}).save("other.safetensors")
    status, out, err = run(capsys, "reference.safetensors", "other.safetensors")
    assert (status, out) == (2, []) and len(err) == 1 and "different inputs (digests a1b2 and other)" in err[0]
    status, out, err = run(capsys, "reference.safetensors", "other.safetensors", "--force")
    assert status == 0 and out[0].startswith("Identical: ")
    assert err == ["workbench: the traces are of different inputs (digests a1b2 and other)"]


def test_dump_folder_is_compared_with_a_mapping(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "dumps").mkdir()
    np.save(tmp_path / "dumps" / "out.npy", computed(reverse=True)["encoder.output"].T)
    (tmp_path / "names.toml").write_text('[stages]\n"encoder.output" = { from = "out", transpose = true }')
    status, out, err = run(capsys, "reference.safetensors", "dumps", "--mapping", "names.toml")
    assert status == 0 and "Within tolerance f32: 1 stage, " in out[0]
    assert err[0].startswith("workbench: the candidate does not say what input it was computed on; if it is the ref")
    assert err[1].startswith("workbench: not compared, since the candidate does not have them: frontend.fbank, ")
    status, out, _ = run(capsys, "reference.safetensors", "dumps")
    assert status == 2 and out == []


@pytest.mark.parametrize(
    "words, message",
    [
        ("reference.safetensors nothing.safetensors", "there is no trace nothing.safetensors; expected "),
        ("reference.safetensors cut.safetensors", "cut.safetensors is truncated"),
        ("reference.safetensors huge.safetensors", "its header claims 10000000000 bytes, and the file has 9"),
        ("reference.safetensors none.safetensors", "none.safetensors is truncated or not a safetensors file"),
        (
            "reference.safetensors claim.safetensors",
            "claim.safetensors is truncated: tensor 'logits' of claim.safetens",
        ),
        (
            "reference.safetensors claims",
            "logits.npy is truncated: its shape (2500000000,) of float32 is 10000000000 byte",
        ),
        ("reference.safetensors cut.npz", "cut.npz is truncated or not a .npz file"),
        ("reference.safetensors foreign.safetensors", "no stage in common: the reference has frontend.fbank, "),
        ("nan.safetensors reference.safetensors", "stage encoder.output of the reference holds no finite number"),
        ("reference.safetensors shallow.safetensors", "the reference has 8 encoder.layers and the candidate 3"),
        ("reference.safetensors noise.safetensors --stages x.*", "no stage that both traces have matches x.*"),
        ("reference.safetensors noise.safetensors --tolerance l2=1", "tolerance 'l2=1' is not understood; expected "),
        (
            "reference.safetensors noise.safetensors --tolerance zz.*:relative_l2=1",
            "the tolerance for 'zz.*' matches no compared stage; the nearest stages are ",
        ),
        (
            "reference.safetensors noise.safetensors --tolerance encoder.layer.3:peak=1 --tolerance peak=2",
            "the nearest stages are encoder.layers.3, encoder.layers.",
        ),
        (
            "reference.safetensors noise.safetensors --stages encoder.* --tolerance logits:kl=1",
            "for 'logits' matches no compared stage",
        ),
        ("reference.safetensors noise.safetensors --mapping no.toml", "the mapping file no.toml cannot be read"),
        ("reference.safetensors noise.safetensors --float64 noise.safetensors", "expected one computed in float64"),
        (
            "reference.safetensors noise.safetensors --same-precision noise.safetensors",
            "a trace in the same precision requires one in float64 too",
        ),
        (
            "reference.safetensors noise.safetensors --same-precision noise.safetensors --float64 float64.safetensors",
            "the trace in the same precision has float32 and the candidate float32; expected both in bfloat16",
        ),
        ("reference.safetensors noise.safetensors --profiles", "--profiles are part of the JSON; give --json too"),
        ("reference.safetensors noise.safetensors --preset f8", "invalid choice: 'f8'"),
        ("reference.safetensors", "the following arguments are required: CANDIDATE"),
    ],
)
def test_bad_input_raises_one_line_error_and_exit_2(capsys: Capture, words: str, message: str) -> None:
    Path("cut.safetensors").write_bytes(Path("reference.safetensors").read_bytes()[:-9])
    Path("huge.safetensors").write_bytes((10**10).to_bytes(8, "little") + b"{")
    Trace({"encoder.output": np.full((24, 64), np.nan)}, META).save("nan.safetensors")
    computed(layers=3).save("shallow.safetensors")
    Trace({"blk.0": np.ones(3)}, {}).save("foreign.safetensors")
    Path("none.safetensors").touch()
    claim = b'{"logits": {"dtype": "F32", "shape": [2500000000], "data_offsets": [0, 10000000000]}}'
    Path("claim.safetensors").write_bytes(len(claim).to_bytes(8, "little") + claim + bytes(64))
    Path("claims").mkdir()
    with Path("claims/logits.npy").open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (2_500_000_000,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(64))
    np.savez("cut.npz", a=np.ones(100))
    Path("cut.npz").write_bytes(Path("cut.npz").read_bytes()[:-100])
    status, out, err = run(capsys, *words.split())
    assert (status, out) == (2, []) and len(err) == 1 and message in err[0]


def test_missing_stage_is_reported_and_common_stages_are_compared(capsys: Capture) -> None:
    trace = computed()
    Trace({stage: trace[stage] for stage in trace if stage != "encoder.output"}, META).save("lacking.safetensors")
    status, out, err = run(capsys, "reference.safetensors", "lacking.safetensors")
    assert status == 0 and out[0].startswith("Identical: 14 stages")
    assert err == ["workbench: not compared, since the candidate does not have them: encoder.output"]


def test_candidate_stage_of_only_nan_exits_1(capsys: Capture) -> None:
    Trace({**computed(), "encoder.output": np.full((24, 64), np.nan)}, META).save("nan.safetensors")
    status, out, _ = run(capsys, "reference.safetensors", "nan.safetensors")
    assert status == 1
    assert out[0].startswith(
        "encoder.output is the first stage beyond tolerance f32: 1536 values of the candidate and 0 of the "
        "reference are infinite or not a number"
    )
