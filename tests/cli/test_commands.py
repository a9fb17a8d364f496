"""The `workbench` command: what goes to stdout, what to stderr, and the exit status."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.registry.test_weights import put_gguf
from tests.support.processes import FAKE_CHILD, ROOT
from tests.support.tiny_checkpoints import noise, tiny_paraformer, tiny_sensevoice
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from tests.support.tiny_language import tiny_language
from workbench import __version__
from workbench.audio.read import write_wav
from workbench.cli.commands import main
from workbench.core.errors import BadInput
from workbench.core.settings import SETTINGS
from workbench.isolation import serial
from workbench.registry.registry import Registry
from workbench.trace.trace import Trace

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
"""Promised to scripts; more may follow them."""
Capture = pytest.CaptureFixture[str]
lasting = pytest.mark.usefixtures("lasting_sessions")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models and two recordings."""
    folder = tmp_path_factory.mktemp("cli")
    tiny_language(folder / "qwen3", seed=3)
    tiny_sensevoice(folder / "sensevoice")
    tiny_paraformer(folder / "paraformer")
    write_wav(folder / "long.wav", noise(6.0)[0])
    write_wav(folder / "short.wav", noise(1.0)[0])
    (folder / "bad.wav").write_text("this is no sound\n" * 20)
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of `tests.support.fake_worker`, which do what the name of the recording says."""
    monkeypatch.setattr(serial, "CHILD", FAKE_CHILD)


def run(capsys: Capture, *words: str) -> tuple[int, list[str], list[str]]:
    """Exit status, lines of stdout, lines of stderr."""
    try:
        status = main(words)
    except SystemExit as stop:
        status = int(stop.code or 0)
    printed = capsys.readouterr()
    return status, printed.out.splitlines(), printed.err.splitlines()


# Models.


def test_models_are_listed_with_their_runtimes(capsys: Capture) -> None:
    status, out, err = run(capsys, "models")
    assert (status, err) == (0, [])
    start = out.index("demo/paraformer: Demo Paraformer: spoken digits (en)")
    assert [line.split(":")[0] for line in out[start + 1 : start + 4]] == ["  pytorch", "  gguf", "  vllm"]


def test_models_as_json(capsys: Capture) -> None:
    status = main(["models", "--json"])
    models = json.loads(capsys.readouterr().out)
    assert status == 0 and {"demo/sensevoice", "fsmn-vad"} <= {model["id"] for model in models}
    for model in models:
        assert set(model["runtimes"]) == {"pytorch", "gguf", "vllm"}
        for name, state in model["runtimes"].items():
            assert set(state) == {"ready", "reason"} | ({"quantizations"} if name == "gguf" else set())
            assert state["ready"] == (state["reason"] is None)


def test_a_broken_list_of_models_is_one_line(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models.toml").write_text("[[model]\n")
    monkeypatch.setenv("WORKBENCH_MODELS", str(tmp_path / "models.toml"))
    status, out, err = run(capsys, "models")
    assert (status, err) == (0, []) and "demo/paraformer: Demo" in "".join(out) and "is not valid TOML" in out[-1]
    status, out, err = run(capsys, "models", "--json")
    assert status == 0 and len(err) == 1 and "is not valid TOML" in err[0]


def test_a_bad_card_is_one_line_among_the_models(
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
    bad = json.loads(capsys.readouterr().out)[-1]
    assert (status, bad["id"]) == (0, "long") and "File name too long" in bad["runtimes"]["gguf"]["reason"]
    status, out, err = run(capsys, "transcribe", "long.wav", "--model", "long")
    assert (status, out, len(err)) == (2, [], 1) and "File name too long" in err[0]


# Transcripts.


@lasting
def test_json_has_the_promised_fields_first(capsys: Capture) -> None:
    status, out, err = run(
        capsys, "transcribe", "long.wav", "--model", "sensevoice", "--format", "json", "--language", "en", "--itn"
    )
    assert (status, err, len(out)) == (0, [], 1)
    found = json.loads(out[0])
    assert list(found)[: len(FIELDS)] == FIELDS
    assert found["model"] == "sensevoice" and found["runtime"] == "pytorch" and found["audio_seconds"] == 6.0
    assert found["text"] and found["segments"] and found["tokens"]
    assert all(list(segment)[:3] == ["start", "end", "text"] for segment in found["segments"])
    assert all(token["start"] <= token["end"] for segment in found["segments"] for token in segment["tokens"])
    assert isinstance(found["tags"], dict) and found["memory_bytes"] > 1 << 20
    assert found["load_seconds"] > 0 and found["compute_seconds"] > 0


@lasting
def test_several_recordings_are_one_object_per_line_in_order_and_a_bad_one_spoils_no_other(capsys: Capture) -> None:
    words = ("transcribe", "long.wav", "bad.wav", "missing.wav", "short.wav", "-m", "paraformer", "--format", "json")
    status, out, err = run(capsys, *words)
    assert status == 2 and [json.loads(line)["audio_seconds"] for line in out] == [6.0, 1.0]
    assert [line.split()[:2] for line in err] == [["workbench:", "bad.wav"], ["workbench:", "there"]]


@lasting
def test_one_bad_recording_is_one_line_and_exit_2(capsys: Capture) -> None:
    status, out, err = run(capsys, "transcribe", "bad.wav", "--model", "sensevoice")
    assert (status, out, len(err)) == (2, [], 1) and err[0].startswith("workbench: bad.wav is not a sound file")


def test_text_is_one_line_per_recording_even_without_speech(capsys: Capture, fake: None) -> None:
    status, out, err = run(capsys, "transcribe", "one.wav", "noted.wav", "-m", "sensevoice")
    # The fake model writes the recording's path.
    assert status == 0 and [Path(line).name for line in out] == ["one.wav", "noted.wav"]
    assert [line.partition(": ")[0] for line in out] == ["one.wav", "noted.wav"]  # each line names its recording
    assert err == ["noted.wav: this is a note"]


def test_subtitles(capsys: Capture, fake: None) -> None:
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
    assert err == [f"workbench: a {form} file holds one recording, and 2 are given; run one at a time"]


def test_a_table_names_the_recordings_where_there_are_several(capsys: Capture, fake: None) -> None:
    assert main(["transcribe", "one.wav", "-m", "sensevoice", "--format", "csv"]) == 0
    [header, row] = csv.reader(io.StringIO(capsys.readouterr().out))
    assert header == ["model", "runtime", "start", "end", "text"] and row[:4] == ["fake", "fake", "0.000", "1.000"]
    assert main(["transcribe", "one.wav", "refuse.wav", "two.wav", "-m", "sensevoice", "--format", "csv"]) == 2
    printed = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    assert [row["file"] for row in rows] == ["one.wav", "two.wav"] and printed.err == "workbench: the fake refuses\n"


@lasting
def test_recordings_are_transcribed_as_one_batch_with_the_options_of_the_model(capsys: Capture, folder: Path) -> None:
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
    together = [json.loads(line) for line in out]
    assert [found["audio_seconds"] for found in together] == [6.0, 1.0]
    _, out, _ = run(capsys, *words, *hotwords, "--language", "en")
    assert [json.loads(line)["tokens"] for line in out] == [found["tokens"] for found in together]
    _, out, _ = run(capsys, *words)
    assert [json.loads(line)["tokens"] for line in out] != [found["tokens"] for found in together], "options matter"


# GGUF.


def test_a_gguf_file_runs_without_naming_a_runtime_and_says_its_quantisation(
    capsys: Capture, fake: None, tmp_path: Path
) -> None:
    put_gguf(tmp_path / "mine.gguf", quantization="Q8_0")
    words = ("transcribe", "short.wav", "-m", str(tmp_path / "mine.gguf"), "--format", "json")
    for more in ((), ("-r", "gguf"), ("-q", "q8_0"), ("--quantization", "auto")):
        status, out, err = run(capsys, *words, *more)
        assert (status, err, json.loads(out[0])["quantization"]) == (0, [], "q8_0")
    status, out, err = run(capsys, *words, "-r", "pytorch")
    assert (status, out) == (3, []) and err[0].endswith("pytorch needs the checkpoint that it was made of")
    status, out, err = run(capsys, *words, "-q", "f16")
    assert (status, out) == (2, []) and "the weights of mine.gguf are q8_0 already" in err[0]


def test_a_checkpoint_runs_quantised(capsys: Capture, folder: Path) -> None:
    words = ("transcribe", "short.wav", "-m", "sensevoice", "-r", "gguf", "-q", "q8_0", "--format", "json")
    status, out, err = run(capsys, *words)
    assert (status, err) == (0, [])
    found = json.loads(out[0])
    assert list(found)[: len(FIELDS)] == FIELDS and (found["runtime"], found["quantization"]) == ("gguf", "q8_0")
    status, out, _ = run(capsys, "models")
    assert any(line.startswith("  gguf: ready (f32") for line in out)


# Language models.


@lasting
def test_text_is_written_after_a_prompt(
    capsys: Capture, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("-m", "qwen3", "--max-new-tokens", "8", "--min-new-tokens", "8")
    assert main(["generate", "hello", *words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found)[:4] == ["model", "runtime", "text", "tokens"] and len(found["tokens"]) == 8
    assert 0 < found["first_token_seconds"] < found["compute_seconds"] and found["load_seconds"] > 0
    assert main(["generate", "hello", *words]) == 0
    printed = capsys.readouterr()
    assert printed.out == found["text"] + "\n"
    assert printed.err == "qwen3: cut off after 8 tokens; see --max-new-tokens\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    assert main(["generate", "-", *words]) == 0
    assert capsys.readouterr().out == found["text"] + "\n"


@pytest.mark.parametrize("form", ["text", "json"])
def test_notes_of_a_text_go_to_stderr(capsys: Capture, fake: None, form: str) -> None:
    status, _, err = run(capsys, "generate", "noted", "-m", "qwen3", "--format", form)
    assert (status, err) == (0, ["fake: this is a note"])


@lasting
def test_alternatives_are_listed_beside_the_text(capsys: Capture, folder: Path) -> None:
    words = ("generate", "hello", "-m", "qwen3", "--max-new-tokens", "3", "--alternatives", "2")
    status, [line], _ = run(capsys, *words, "--format", "json")
    found = json.loads(line)
    first = [step[0]["id"] for step in found["alternatives"]]
    assert status == 0 and first == found["tokens"] and {len(step) for step in found["alternatives"]} == {2}
    status, out, err = run(capsys, *words)
    assert (status, out) == (0, [found["text"]])
    assert [line.split()[0] for line in err[:3]] == ["1", "2", "3"]
    assert all(line.count("*") == 1 and line.endswith("%") for line in err[:3])


@lasting
def test_embeddings_are_injected(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(3, 32)).astype(np.float32)
    np.save(tmp_path / "one.npy", values[:2])
    np.savez(tmp_path / "two.npz", speech=values[2:], other=values)
    words = ("inject", "-m", "qwen3", "--no-chat", "--max-new-tokens", "4", "--embedding", str(tmp_path / "one.npy"))
    two = ("--embedding", str(tmp_path / "two.npz"))
    prompt = "say <|fim_pad|><|fim_pad|>"
    status, [line], _ = run(capsys, *words, *two, "--tensor", "speech", "--prompt", prompt, "--format", "json")
    found = json.loads(line)
    assert status == 0 and len(found["tokens"]) == 4 and found["prompt_tokens"] > 3
    monkeypatch.setattr("sys.stdin", io.StringIO(prompt + "\n"))
    status, out, _ = run(capsys, *words, *two, "--tensor", "speech", "--prompt", "-")
    assert status == 0 and out == found["text"].splitlines()
    status, _, [said] = run(capsys, *words, *two, "--prompt", prompt)
    assert status == 2 and "two.npz holds 2 tensors: " in said and said.endswith("see --tensor")
    asked = (*words, *two, *two, "--prompt", prompt.replace(" ", " <|fim_pad|>"))
    each = [run(capsys, *asked, *names)[1] for names in (("--tensor", "other"), ("--tensor", "speech"))]
    mixed = run(capsys, *asked, "--tensor", "speech", "--tensor", "other", "--format", "json")
    assert (
        mixed[0] == 0 and json.loads(mixed[1][0])["prompt_tokens"] - found["prompt_tokens"] == 3 and each[0] != each[1]
    )
    status, _, [said] = run(capsys, *asked, *["--tensor", "speech"] * 3)
    assert status == 2 and "--tensor is given 3 times, and 2 of the files of --embedding hold several tensors" in said
    status, _, [said] = run(capsys, *words, "--tensor", "speech", "--prompt", "say <|fim_pad|>")
    assert status == 2 and "one.npy holds one tensor without a name; expected no name" in said
    status, _, [said] = run(capsys, *words, "--vad", "silero", "--prompt", "say <|fim_pad|>")
    assert status == 2 and "has no option vad; it has max_new_tokens," in said
    status, _, [said] = run(capsys, *words, "--prompt", "say")
    assert status == 2 and said.endswith('expected one for each, as in "What is said here: <|fim_pad|>"')
    status, _, [said] = run(capsys, *words, "--embedding", "gone.npy", "--prompt", prompt)
    assert status == 2 and "gone.npy cannot be read: there is no such file" in said


@lasting
def test_a_prompt_is_traced(capsys: Capture, tmp_path: Path) -> None:
    out_file = tmp_path / "t.safetensors"
    words = ("trace", "hello", "-m", "qwen3", "--out", str(out_file), "--stages", "logits,tokens", "--no-chat")
    status, out, err = run(capsys, *words, "--max-new-tokens", "4")
    told = ["tokens.alternatives", "tokens.logprobs"]
    assert (status, err) == (0, []) and [line.split("\t")[0] for line in out] == ["logits", "tokens", *told]
    assert Trace.load(out_file).meta["options"] == {"chat": False, "max_new_tokens": 4}


@lasting
def test_an_empty_prompt_on_stdin_is_bad_input(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    status, out, err = run(capsys, "generate", "-", "-m", "qwen3")
    assert (status, out, err) == (2, [], ["workbench: the prompt is empty; expected a text"])


@lasting
def test_bytes_on_stdin_that_are_no_text_are_bad_input(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8"))
    status, out, err = run(capsys, "generate", "-", "-m", "qwen3")
    assert (status, out, len(err)) == (2, [], 1) and err[0].startswith(
        "workbench: the prompt on stdin is no utf-8 text"
    )


def test_every_recipe_can_be_asked_for(capsys: Capture) -> None:
    status, _, err = run(capsys, "train-demo", "nobody", "--data", "x", "--out", "y")
    assert status == 2
    assert "choose from 'sensevoice', 'paraformer', 'funasr-nano', 'fireredasr'" in " ".join(err)


# What is wrong.


@lasting
@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        ("transcribe short.wav", 2, "the following arguments are required: --model/-m"),
        ("transcribe --model sensevoice", 2, "there is no recording; expected AUDIO, or --live"),
        (
            "transcribe short.wav -m sensevoice --rate 8000",
            2,
            "--rate describes raw samples on standard input; expected",
        ),
        ("transcribe --live -m sensevoice --channels 2", 2, "--channels describes raw samples on standard input"),
        ("transcribe short.wav -m sensevoice --format doc", 2, "argument --format: invalid choice: 'doc'"),
        ("transcribe short.wav -m sensevoice --runtime onnx", 2, "argument --runtime/-r: invalid choice: 'onnx'"),
        ("transcribe short.wav -m sensevoice --dither loud", 2, "argument --dither: invalid float value: 'loud'"),
        ("transcribe short.wav -m sensevoice --colour red", 2, "unrecognized arguments: --colour red"),
        ("trace short.wav -m sensevoice", 2, "the following arguments are required: --out"),
        ("transcribe short.wav -m sensevoice --lanuage en", 2, "--lanuage en; did you mean --language?"),
        ("transcribe short.wav -m sensevoice --runtime pytroch", 2, "'pytroch'; did you mean pytorch?"),
        ("frobnicate", 2, "argument COMMAND: invalid choice: 'frobnicate' (choose from"),
        ("transcrib short.wav", 2, "argument COMMAND: invalid choice: 'transcrib'; did you mean transcribe?"),
        ("", 2, "the following arguments are required: COMMAND"),
        (
            "transcribe short.wav -m demo/sensevoize",
            2,
            "there is no model 'demo/sensevoize' and no such directory or GGUF file; did you",
        ),
        ("transcribe short.wav -m short.wav", 2, "short.wav is a file, and not in GGUF format; expected"),
        (
            "transcribe short.wav -m paraformer --itn",
            2,
            "paraformer has no option itn; it has vad, max_segment_seconds,",
        ),
        (
            "transcribe short.wav -m sensevoice --language de",
            2,
            "option language of sensevoice is 'de'; expected one of auto",
        ),
        ("transcribe short.wav -m sensevoice --dither nan", 2, "option dither of sensevoice is nan; expected a finite"),
        (
            "transcribe short.wav -m sensevoice --end-silence-ms 500",
            2,
            "option end_silence_ms is 500 and option vad is 'auto'; end_silence_ms applies where vad names an FSMN-VAD",
        ),
        ("transcribe short.wav -m sensevoice --vad loud", 2, "option vad is 'loud'; expected auto, silero, none, or"),
        ("transcribe short.wav -m sensevoice --threads 0", 2, "threads is 0; expected 1 to 1024"),
        ("transcribe short.wav -m sensevoice --device abacus", 2, "device is 'abacus'; expected a name such as cpu"),
        ("transcribe short.wav -m sensevoice --device meta", 2, "device is 'meta', on which torch computes nothing"),
        (
            "transcribe short.wav -m sensevoice --runtime vllm",
            3,
            "sensevoice cannot run on vllm: SenseVoice has no autor",
        ),
        ("transcribe short.wav -m sensevoice-small", 3, "sensevoice-small is not on this machine and the Hugging Face"),
        ("app --port 70000", 2, "the port is '70000'; expected 0 to 65535"),
        ("train-demo whisper --data . --out x", 2, "argument FAMILY: invalid choice: 'whisper'"),
        ("train-demo sensevoice --data . --out x --threads 0", 2, "--threads is 0; expected 1 to 1024"),
        ("train-demo sensevoice --data . --out x --scale 0", 2, "--scale is 0.0; expected more than 0, at most 100"),
        ("train-demo sensevoice --data . --out x --scale nan", 2, "--scale is nan; expected a finite number"),
        ("train-demo sensevoice --data . --out x --seed -1", 2, "--seed is -1; expected 0 to 9007199254740991"),
        ("train-demo sensevoice --data . --out x --other-speech .", 2, "--other-speech is for a training that goes on"),
        ("train-demo paraformer --data . --out x --more-speakers .", 2, "--more-speakers is for a training that goes"),
        ("transcribe short.wav -m sensevoice --runtime gguf --dtype bfloat16", 2, "dtype is bfloat16, and gguf has"),
        ("transcribe short.wav -m sensevoice --dtype int8", 2, "argument --dtype: invalid choice: 'int8'"),
        ("transcribe short.wav -m sensevoice --hotwords one,two", 2, "sensevoice has no option hotwords; it has"),
        ("transcribe short.wav -m qwen3", 2, "qwen3 writes text; to transcribe, open a speech model"),
        ("generate hello -m sensevoice", 2, "sensevoice transcribes speech; to generate from text, open a language"),
        ("generate hello -m qwen3 --itn", 2, "qwen3 has no option itn; it has max_new_tokens,"),
        ("generate hello -m qwen3 --format srt", 2, "argument --format: invalid choice: 'srt'"),
        ("generate hello -m qwen3 --alternatives 21", 2, "option alternatives of qwen3 is 21; expected 0 to 20"),
        ("generate hello -m qwen3 --max-new-tokens 0", 2, "option max_new_tokens of qwen3 is 0; expected 1 to 1048576"),
        ("generate hello -m qwen3 --top-p 3", 2, "option top_p of qwen3 is 3.0; expected more than 0, at most 1"),
        ("generate hello -m qwen3 --top-p 0", 2, "option top_p of qwen3 is 0.0; expected more than 0, at most 1"),
        ("generate hello -m qwen3 --temperature -1", 2, "temperature of qwen3 is -1.0; expected 0, or 0.01 to 100"),
        ("generate hello -m qwen3 --temperature 1e-9", 2, "temperature of qwen3 is 1e-09; expected 0, or 0.01 to 100"),
        ("generate hello -m qwen3 --threads 100000", 2, "threads is 100000; expected 1 to 1024"),
        (
            "transcribe short.wav -m sensevoice --dither 1e9",
            2,
            "dither of sensevoice is 1000000000.0; expected 0 to 3276",
        ),
        (
            "transcribe short.wav -m demo/fireredasr --beam-size 100000",
            2,
            "beam_size of demo/fireredasr is 100000; expected 1 to 64",
        ),
        (
            "generate hello -m qwen3 --max-new-tokens 5000",
            2,
            "max_new_tokens of qwen3 is 5000; expected at most 256, the",
        ),
        ("generate hello -m qwen3 --max-new-tokens 256", 2, "expected at most 256 together, the context of qwen3"),
        ("transcribe short.wav -m demo/funasr-nano --max-new-tokens 1000000", 2, "the context of Qwen3-demo"),
        (
            "generate hello -m qwen3 --runtime pytorch -q q8_0",
            2,
            "quantization is q8_0, and pytorch has no such setting",
        ),
        ("generate hello -m qwen3 --kv-cache q4_0", 2, "argument --kv-cache: invalid choice: 'q4_0'"),
        ("transcribe short.wav -m sensevoice -r gguf -q q3", 2, "quantization is 'q3'; expected one of auto, f32, f16"),
        ("transcribe short.wav -m sensevoice --max-length 0", 2, "max_length is 0; expected 1 to 1048576"),
        ("transcribe short.wav -m sensevoice --max-length many", 2, "argument --max-length: invalid int value: 'many'"),
        ("transcribe short.wav -m sensevoice --kv-gigabytes nan", 2, "kv_gigabytes is nan; expected a finite number"),
        ("transcribe short.wav -m sensevoice --kv-gigabytes 0", 2, "kv_gigabytes is 0.0; expected 0.001 to 10000"),
        (
            "trace short.wav -m sensevoice --out x.safetensors --no-eager",
            2,
            "eager is False, and pytorch has no such setting; leav",
        ),
        (
            "generate hello -m qwen3 --tensor-parallel 2 -r gguf",
            2,
            "tensor_parallel is 2, and gguf has no such setting; leave it out, or take vllm",
        ),
        ("generate", 2, "the following arguments are required: PROMPT, --model/-m"),
    ],
)
def test_errors_are_one_line_on_stderr(capsys: Capture, words: str, status: int, sentence: str) -> None:
    found, out, err = run(capsys, *words.split())
    assert (found, out, len(err)) == (status, [], 1)
    assert sentence in err[0] and err[0].startswith("workbench")


def test_numbers_are_checked_before_the_model_is_loaded(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[object] = []
    monkeypatch.setattr("workbench.isolation.serial.ProcessSession.start", lambda self: loads.append(self))
    for words in (
        "generate hello -m qwen3 --top-p 3",
        "generate hello -m qwen3 --threads 100000",
        "generate hello -m qwen3 --max-new-tokens 5000",
    ):
        assert run(capsys, *words.split())[0] == 2
    assert loads == []


def test_every_setting_is_a_flag_of_the_commands_that_open_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}

    def opened(self: Registry, model: str, **asked: object) -> None:
        given.update(asked)
        raise BadInput("seen")

    monkeypatch.setattr(Registry, "open", opened)
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
        given.clear()
        model = "qwen3" if command.startswith("generate") else "sensevoice"
        assert main([*command.split(), "-m", model, *words.split()]) == 2
        assert {name: given[name] for name in expected} == expected
        given.clear()
        assert main([*command.split(), "-m", model]) == 2
        assert given.keys() == {"runtime", "on_progress", "options"}, "what is not given is the card's to say"


def test_a_name_with_a_line_break_does_not_break_the_line(capsys: Capture) -> None:
    status, _, err = run(capsys, "transcribe", "short.wav", "-m", "two\nlines\r\n")
    assert (status, len(err)) == (2, 1)


def test_a_session_that_dies_costs_its_own_recording(capsys: Capture, fake: None) -> None:
    status, out, err = run(capsys, "transcribe", "one.wav", "exit.wav", "two.wav", "-m", "sensevoice")
    assert status == 1 and [Path(line).name for line in out] == ["one.wav", "two.wav"]
    assert len(err) == 1 and "ended with status 3 while transcribing" in err[0]


def test_a_fault_of_the_model_is_one_line_and_exit_1(capsys: Capture, fake: None) -> None:
    status, out, err = run(capsys, "transcribe", "fault.wav", "-m", "sensevoice")
    assert (status, out) == (1, [])
    assert err == ["workbench: sensevoice on pytorch failed: ValueError: first line second line"]


def test_a_fault_of_ours_is_one_line_and_its_traceback_can_be_had(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: object) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("workbench.registry.registry.Registry.cards", broken)
    status, out, err = run(capsys, "models")
    assert (status, out) == (1, [])
    assert err == ["workbench: ZeroDivisionError: by zero; WORKBENCH_DEBUG=1 shows where"]
    monkeypatch.setenv("WORKBENCH_DEBUG", "1")
    _, _, err = run(capsys, "models")
    assert err[0] == "Traceback (most recent call last):" and err[-1].startswith("workbench: ")


def test_the_version(capsys: Capture) -> None:
    assert run(capsys, "--version") == (0, [f"workbench {__version__}"], [])


@pytest.mark.parametrize(
    "command", ["", "app", "models", "transcribe", "generate", "inject", "trace", "compare", "convert", "train-demo"]
)
def test_every_command_explains_itself(capsys: Capture, command: str) -> None:
    status, out, err = run(capsys, *command.split(), "--help")
    assert (status, err) == (0, []) and out[0].startswith("usage: workbench")


def test_the_page_gets_only_the_arguments_that_were_set(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []
    monkeypatch.setattr("runpy.run_module", lambda name, run_name: given.append([name, *sys.argv[1:]]))
    monkeypatch.setattr(sys, "argv", ["pytest"])
    assert main(["app"]) == 0 and main(["app", "--host", "0.0.0.0", "--port", "8000"]) == 0
    assert given == [["panels"], ["panels", "--host", "0.0.0.0", "--port", "8000"]]


# The shipped models.


@pytest.mark.parametrize("family", ["sensevoice", "paraformer"])
@lasting
def test_a_demo_model_writes_down_a_sample(capsys: Capture, family: str) -> None:
    checkpoint, sample = ROOT / "assets" / f"demo-{family}", ROOT / "assets" / "samples" / "three_seven_one.wav"
    for needed in (checkpoint, sample):
        if not needed.exists():
            pytest.skip(f"{needed.relative_to(ROOT)} is not in this checkout")
    status, out, err = run(capsys, "transcribe", str(sample), "--model", f"demo/{family}")
    assert (status, out, err) == (0, ["three seven one"], [])
