"""The `workbench` command: what goes to stdout, what to stderr, and the exit status."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from tests.registry.test_weights import put_gguf
from tests.support.command_line import Capture, lasting, run
from tests.support.processes import ROOT
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from workbench import __version__
from workbench.cli.commands import main
from workbench.core.errors import BadInput
from workbench.core.settings import SETTINGS
from workbench.registry.registry import Registry

FIELDS = [
    "model",
    "runtime",
    "text",
    "language",
    "segments",
    "tokens",
    "audio_seconds",
    "load_seconds",
    "compute_seconds",
]
"""Scripts may rely on these fields; others may follow them."""
pytestmark = pytest.mark.usefixtures("in_folder")


# Models.


def test_models_are_listed_with_their_runtimes(capsys: Capture) -> None:
    status, out, err = run(capsys, "models")
    assert (status, err) == (0, [])
    start = out.index("demo/paraformer: Demo Paraformer: spoken digits (en)")
    assert [line.split(":")[0] for line in out[start + 1 : start + 4]] == ["  pytorch", "  gguf", "  vllm"]


def test_models_json_lists_runtimes_with_reasons(capsys: Capture) -> None:
    status = main(["models", "--json"])
    models = json.loads(capsys.readouterr().out)
    assert status == 0 and {"demo/sensevoice", "fsmn-vad"} <= {model["id"] for model in models}
    for model in models:
        assert set(model["runtimes"]) == {"pytorch", "gguf", "vllm"}
        for name, state in model["runtimes"].items():
            assert set(state) == {"ready", "reason"} | ({"quantizations"} if name == "gguf" else set())
            assert state["ready"] == (state["reason"] is None)


def test_invalid_models_toml_is_reported_in_one_line(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.toml").write_text("[[model]\n")
    monkeypatch.setenv("WORKBENCH_MODELS", str(tmp_path / "models.toml"))
    status, out, err = run(capsys, "models")
    assert (status, err) == (0, []) and "demo/paraformer: Demo" in "".join(out) and "is not valid TOML" in out[-1]
    status, out, err = run(capsys, "models", "--json")
    assert status == 0 and len(err) == 1 and "is not valid TOML" in err[0]


def test_bad_model_card_is_reported_in_one_line_of_the_model_list(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.toml").write_text(
        f'[[model]]\nid = "long"\nfamily = "sensevoice"\nsource = {{ directory = "{"x" * 5000}" }}\n'
    )
    monkeypatch.setenv("WORKBENCH_MODELS", str(tmp_path / "models.toml"))
    status, out, err = run(capsys, "models")
    assert (status, err) == (0, []) and "demo/paraformer: Demo" in "".join(out)
    assert [line for line in out if "long" in line] == out[-1:]
    status = main(["models", "--json"])
    bad_card = json.loads(capsys.readouterr().out)[-1]
    assert (status, bad_card["id"]) == (0, "long") and "File name too long" in bad_card["runtimes"]["gguf"]["reason"]
    status, out, err = run(capsys, "transcribe", "long.wav", "--model", "long")
    assert (status, out, len(err)) == (2, [], 1) and "File name too long" in err[0]


# Transcripts.


@lasting
def test_transcript_json_begins_with_the_documented_fields(capsys: Capture) -> None:
    status, out, err = run(
        capsys, "transcribe", "long.wav", "--model", "sensevoice", "--format", "json", "--language", "en", "--itn"
    )
    assert (status, err, len(out)) == (0, [], 1)
    transcript = json.loads(out[0])
    assert list(transcript)[: len(FIELDS)] == FIELDS
    assert (
        transcript["model"] == "sensevoice"
        and transcript["runtime"] == "pytorch"
        and transcript["audio_seconds"] == 6.0
    )
    assert transcript["text"] and transcript["segments"] and transcript["tokens"]
    assert all(list(segment)[:3] == ["start", "end", "text"] for segment in transcript["segments"])
    assert all(token["start"] <= token["end"] for segment in transcript["segments"] for token in segment["tokens"])
    assert isinstance(transcript["tags"], dict) and transcript["memory_bytes"] > 1 << 20
    assert transcript["load_seconds"] > 0 and transcript["compute_seconds"] > 0


@lasting
def test_several_recordings_give_json_lines_in_order_despite_a_bad_recording(capsys: Capture) -> None:
    words = ("transcribe", "long.wav", "bad.wav", "missing.wav", "short.wav", "-m", "paraformer", "--format", "json")
    status, out, err = run(capsys, *words)
    transcripts = [json.loads(line) for line in out]
    assert status == 2 and [each["audio_seconds"] for each in transcripts] == [6.0, 1.0]
    assert [each["file"] for each in transcripts] == ["long.wav", "short.wav"]
    assert [line.split()[:2] for line in err] == [["workbench:", "bad.wav"], ["workbench:", "there"]]


@lasting
def test_bad_recording_raises_one_line_error_and_exit_2(capsys: Capture) -> None:
    status, out, err = run(capsys, "transcribe", "bad.wav", "--model", "sensevoice")
    assert (status, out, len(err)) == (2, [], 1) and err[0].startswith("workbench: bad.wav is not a sound file")


def test_text_is_one_line_per_recording_even_without_speech(capsys: Capture, fake: None) -> None:
    status, out, err = run(capsys, "transcribe", "one.wav", "noted.wav", "-m", "sensevoice")
    # The fake model writes the recording's path.
    assert status == 0 and [Path(line).name for line in out] == ["one.wav", "noted.wav"]
    assert [line.partition(": ")[0] for line in out] == ["one.wav", "noted.wav"]  # each line names its recording
    assert err == ["noted.wav: this is a note"]


def test_transcript_is_written_as_srt_and_vtt_subtitles(capsys: Capture, fake: None) -> None:
    status, out, err = run(capsys, "transcribe", "one.wav", "-m", "sensevoice", "--format", "srt")
    assert (
        (status, err) == (0, []) and out[:2] == ["1", "00:00:00,000 --> 00:00:01,000"] and "one.wav" in "".join(out[2:])
    )
    status, out, err = run(capsys, "transcribe", "one.wav", "-m", "sensevoice", "--format", "vtt")
    assert (status, err) == (0, []) and out[:3] == ["WEBVTT", "", "00:00:00.000 --> 00:00:01.000"]


@pytest.mark.parametrize("form", ["srt", "vtt"])
def test_subtitles_of_several_recordings_are_refused_before_any_work(capsys: Capture, form: str) -> None:
    status, out, err = run(capsys, "transcribe", "long.wav", "short.wav", "-m", "no-such-model", "--format", form)
    assert (status, out) == (2, [])
    assert err == [f"workbench: one .{form} file holds one recording, and 2 are given; run one at a time"]


def test_csv_has_a_file_column_for_several_recordings(capsys: Capture, fake: None) -> None:
    assert main(["transcribe", "one.wav", "-m", "sensevoice", "--format", "csv"]) == 0
    [header, row] = csv.reader(io.StringIO(capsys.readouterr().out))
    assert header == ["model", "runtime", "start", "end", "text"] and row[:4] == ["fake", "fake", "0.000", "1.000"]
    assert main(["transcribe", "one.wav", "refuse.wav", "two.wav", "-m", "sensevoice", "--format", "csv"]) == 2
    captured = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(captured.out)))
    assert [row["file"] for row in rows] == ["one.wav", "two.wav"] and captured.err == "workbench: the fake refuses\n"


@lasting
def test_batch_size_and_model_options_apply_to_several_recordings(capsys: Capture, folder: Path) -> None:
    tiny_funasr_nano(folder / "nano")
    words = (
        "transcribe",
        "long.wav",
        "bad.wav",
        "short.wav",
        "-m",
        "nano",
        "--format",
        "json",
        "--max-new-tokens",
        "6",
    )
    hotwords = ("--hotwords", "one, two", "--hotwords", "three")
    status, out, err = run(capsys, *words, "--batch-size", "3", *hotwords, "--language", "en")
    assert status == 2 and len(err) >= 1 and any(line.startswith("workbench: bad.wav is not") for line in err)
    batch = [json.loads(line) for line in out]
    assert [transcript["audio_seconds"] for transcript in batch] == [6.0, 1.0]
    _, out, _ = run(capsys, *words, *hotwords, "--language", "en")
    assert [json.loads(line)["tokens"] for line in out] == [transcript["tokens"] for transcript in batch]
    _, out, _ = run(capsys, *words)
    assert [json.loads(line)["tokens"] for line in out] != [transcript["tokens"] for transcript in batch], (
        "options matter"
    )


# GGUF.


def test_gguf_file_selects_its_runtime_and_reports_its_quantisation(
    capsys: Capture, fake: None, tmp_path: Path
) -> None:
    put_gguf(tmp_path / "mine.gguf", quantization="Q8_0")
    words = ("transcribe", "short.wav", "-m", str(tmp_path / "mine.gguf"), "--format", "json")
    for flags in ((), ("-r", "gguf"), ("-q", "q8_0"), ("--quantization", "auto")):
        status, out, err = run(capsys, *words, *flags)
        assert (status, err, json.loads(out[0])["quantization"]) == (0, [], "q8_0")
    status, out, err = run(capsys, *words, "-r", "pytorch")
    assert (status, out) == (3, []) and err[0].endswith("pytorch needs the checkpoint that it was made from")
    status, out, err = run(capsys, *words, "-q", "f16")
    assert (status, out) == (2, []) and "the weights of mine.gguf are q8_0; expected" in err[0]


def test_checkpoint_runs_quantised_on_gguf(capsys: Capture, folder: Path) -> None:
    words = ("transcribe", "short.wav", "-m", "sensevoice", "-r", "gguf", "-q", "q8_0", "--format", "json")
    status, out, err = run(capsys, *words)
    assert (status, err) == (0, [])
    transcript = json.loads(out[0])
    assert list(transcript)[: len(FIELDS)] == FIELDS and (transcript["runtime"], transcript["quantization"]) == (
        "gguf",
        "q8_0",
    )
    status, out, _ = run(capsys, "models")
    assert any(line.startswith("  gguf: ready (f32") for line in out)


# Arguments.


def test_every_setting_is_a_flag_of_the_commands_that_open_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: dict[str, object] = {}

    def record(self: Registry, model: str, **settings: object) -> None:
        passed.update(settings)
        raise BadInput("recorded")

    monkeypatch.setattr(Registry, "open", record)
    words = "--threads 2 --device cpu --dtype auto -q q8_0 --kv-cache f16 --max-length 512 --kv-gigabytes 1"
    words += " --tensor-parallel 2 --no-eager --stepwise --weights bfloat16 --summation 3"
    expected = {
        "threads": 2,
        "device": "cpu",
        "dtype": "auto",
        "quantization": "q8_0",
        "kv_cache": "f16",
        "max_length": 512,
        "kv_gigabytes": 1.0,
        "tensor_parallel": 2,
        "eager": False,
        "stepwise": True,
        "weights": "bfloat16",
        "summation": 3,
    }
    assert expected.keys() == SETTINGS.keys()
    for command in ("transcribe short.wav", "trace short.wav --out x.safetensors", "generate hello"):
        passed.clear()
        model = "qwen3" if command.startswith("generate") else "sensevoice"
        assert main([*command.split(), "-m", model, *words.split()]) == 2
        assert {name: passed[name] for name in expected} == expected
        passed.clear()
        assert main([*command.split(), "-m", model]) == 2
        assert passed.keys() == {"runtime", "on_progress", "options"}, "the card decides the other settings"


def test_version_flag_prints_the_version(capsys: Capture) -> None:
    assert run(capsys, "--version") == (0, [f"workbench {__version__}"], [])


@pytest.mark.parametrize(
    "command", ["", "app", "models", "transcribe", "generate", "inject", "trace", "compare", "convert", "train-demo"]
)
def test_every_command_prints_help(capsys: Capture, command: str) -> None:
    status, out, err = run(capsys, *command.split(), "--help")
    assert (status, err) == (0, []) and out[0].startswith("usage: workbench")


def test_app_command_passes_only_the_given_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr("runpy.run_module", lambda name, run_name: calls.append([name, *sys.argv[1:]]))
    monkeypatch.setattr(sys, "argv", ["pytest"])
    assert main(["app"]) == 0 and main(["app", "--host", "0.0.0.0", "--port", "8000"]) == 0
    assert calls == [["panels"], ["panels", "--host", "0.0.0.0", "--port", "8000"]]


# The shipped models.


@pytest.mark.parametrize("family", ["sensevoice", "paraformer"])
@lasting
def test_demo_model_transcribes_the_sample_recording(capsys: Capture, family: str) -> None:
    checkpoint, sample = ROOT / "assets" / f"demo-{family}", ROOT / "assets" / "samples" / "three_seven_one.wav"
    for needed in (checkpoint, sample):
        if not needed.exists():
            pytest.skip(f"{needed.relative_to(ROOT)} is not in this checkout")
    status, out, err = run(capsys, "transcribe", str(sample), "--model", f"demo/{family}")
    assert (status, out, err) == (0, ["three seven one"], [])
