"""Errors of the `workbench` command (wrong arguments, dead workers, faults): one stderr line, exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import Capture, lasting, run

pytestmark = pytest.mark.usefixtures("in_folder")


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
        ("transcribe short.wav -m sensevoice --dither loud", 2, "argument --dither: 'loud' is not a number;"),
        (
            "transcribe short.wav -m sensevoice --colour red",
            2,
            "workbench transcribe: unrecognized arguments: --colour red; see",
        ),
        ("trace short.wav -m sensevoice", 2, "the following arguments are required: --out"),
        ("transcribe short.wav -m sensevoice --lanuage en", 2, "--lanuage en; did you mean --language?"),
        (
            "transcribe short.wav --models sensevoice",
            2,
            "arguments are required: --model/-m; there is no --models: did you mean --model?; see",
        ),
        (
            "trace short.wav -m sensevoice --output trace.safetensors",
            2,
            "arguments are required: --out; there is no --output: did you mean --out?; see",
        ),
        (
            "transcribe short.wav -m sensevoice -o it.txt",
            2,
            "-o it.txt; the result goes to stdout: leave out -o, and add > FILE at the end; see",
        ),
        ("generate count to six -m qwen", 2, "arguments: to six; put a text or a path with spaces in quotes; see"),
        ("-m sensevoice transcribe short.wav", 2, "workbench: the command comes first: workbench transcribe ...; see"),
        ("transcribe short.wav -m sensevoice --runtime pytroch", 2, "'pytroch'; did you mean pytorch?"),
        ("frobnicate", 2, "argument COMMAND: invalid choice: 'frobnicate' (choose from"),
        ("transcrib short.wav", 2, "argument COMMAND: invalid choice: 'transcrib'; did you mean transcribe?"),
        ("", 2, "the following arguments are required: COMMAND"),
        (
            "transcribe short.wav -m demo/sensevoize",
            2,
            "there is no model 'demo/sensevoize' and no such directory or GGUF file; did you",
        ),
        ("transcribe short.wav -m short.wav", 2, "short.wav is a file, but not in GGUF format; expected"),
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
        ("serve --allow-origin example.org", 2, "'example.org' is not an origin; expected one such as https://"),
        ("serve --allow-host https://example.org", 2, "'https://example.org' is not the name of a host; expected"),
        (
            "serve --root-path nope",
            2,
            "argument --root-path: 'nope' is not the path of a page; expected one such as /workbench",
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
        ("transcribe short.wav -m sensevoice-small", 3, "sensevoice-small is not on this machine, and the Hugging"),
        ("app --port 70000", 2, "the port is '70000'; expected 0 to 65535"),
        ("train-demo whisper --data . --out x", 2, "argument FAMILY: invalid choice: 'whisper'"),
        ("train-demo sensevoice --data . --out x --threads 0", 2, "--threads is 0; expected 1 to 1024"),
        ("train-demo sensevoice --data . --out x --scale 0", 2, "--scale is 0.0; expected more than 0, at most 100"),
        ("train-demo sensevoice --data . --out x --scale nan", 2, "--scale is nan; expected a finite number"),
        ("train-demo sensevoice --data . --out x --seed -1", 2, "--seed is -1; expected 0 to 9007199254740991"),
        ("train-demo sensevoice --data . --out x --other-speech .", 2, "--other-speech is for the training of"),
        ("train-demo paraformer --data . --out x --more-speakers .", 2, "--more-speakers is for the training of"),
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
        (
            "transcribe short.wav -m sensevoice --max-length many",
            2,
            "argument --max-length: 'many' is not a whole number;",
        ),
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
            "tensor_parallel is 2, and gguf has no such setting; leave it out, or choose vllm",
        ),
        ("generate", 2, "the following arguments are required: PROMPT, --model/-m"),
    ],
)
def test_errors_are_one_line_on_stderr(capsys: Capture, words: str, status: int, sentence: str) -> None:
    exit_status, out, err = run(capsys, *words.split())
    assert (exit_status, out, len(err)) == (status, [], 1)
    assert sentence in err[0] and err[0].startswith("workbench")


def test_unknown_training_recipe_error_lists_the_recipes(capsys: Capture) -> None:
    status, _, err = run(capsys, "train-demo", "nobody", "--data", "x", "--out", "y")
    assert status == 2
    assert "choose from 'sensevoice', 'paraformer', 'funasr-nano', 'fireredasr'" in " ".join(err)


def test_option_values_are_checked_before_the_model_is_loaded(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[object] = []
    monkeypatch.setattr("workbench.isolation.serial.ProcessSession.start", lambda self: loads.append(self))
    for words in (
        "generate hello -m qwen3 --top-p 3",
        "generate hello -m qwen3 --threads 100000",
        "generate hello -m qwen3 --max-new-tokens 5000",
    ):
        assert run(capsys, *words.split())[0] == 2
    assert loads == []


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        ("transcribe bad.wav -m sensevoice", ["bad.wav is not a sound file that can be read: it is a text"]),
        (
            "transcribe missing.wav bad.wav -m sensevoice",
            ["there is no file missing.wav", "bad.wav is not a sound file"],
        ),
        ("trace missing.wav -m sensevoice --out x.safetensors", ["there is no file missing.wav"]),
        ("visualise missing.wav -m sensevoice --out x.png", ["there is no file missing.wav"]),
        ("parity sensevoice missing.wav --candidates pytorch", ["there is no file missing.wav"]),
        ("parity sensevoice short.wav missing.wav --candidates pytorch", ["there is no file missing.wav"]),
        (
            "parity sensevoice short.wav --candidates gguf gguf:q8_0",
            ["gguf:q8_0 is a side to compare and not an input; separate candidates by commas: "],
        ),
    ],
)
def test_unreadable_recording_is_refused_before_the_model_is_loaded(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, words: str, sentences: list[str]
) -> None:
    loads: list[object] = []
    monkeypatch.setattr("workbench.isolation.serial.ProcessSession.start", lambda self: loads.append(self))
    status, out, err = run(capsys, *words.split())
    assert (status, out, loads, len(err)) == (2, [], [], len(sentences))
    assert all(line.startswith(f"workbench: {sentence}") for line, sentence in zip(err, sentences, strict=True))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("transcribe", "", "-m", "sensevoice"), "the path of the recording is empty; expected a sound file"),
        (
            ("trace", "", "-m", "sensevoice", "--out", "x.safetensors"),
            "the path of the recording is empty; expected a sound",
        ),
        (("trace", "a.wav", "-m", "sensevoice", "--out", ""), "argument --out: the path is empty"),
        (("compare", "", "x.npz"), "argument REFERENCE: the path is empty"),
        (("decode", "", "--tokens", "tokens.txt"), "argument LOGITS: the path is empty"),
        (("decode", "x.npy", "--tokens", ""), "argument --tokens: the path is empty"),
        (("decode", "x.npy", "--tokens", "tokens.txt", "--lm", ""), "argument --lm: the path is empty"),
        (("train-lm", "", "--out", "x.arpa"), "argument TEXT: the path is empty"),
        (("evaluate", "", "-m", "sensevoice", "--out", "x"), "the path of the corpus is empty; expected a manifest"),
    ],
)
def test_empty_path_is_refused(capsys: Capture, words: tuple[str, ...], sentence: str) -> None:
    status, out, err = run(capsys, *words)
    assert (status, out, len(err)) == (2, [], 1) and sentence in err[0]


def test_model_name_with_a_line_break_keeps_a_one_line_error(capsys: Capture) -> None:
    status, _, err = run(capsys, "transcribe", "short.wav", "-m", "two\nlines\r\n")
    assert (status, len(err)) == (2, 1)


def test_dead_worker_fails_only_its_own_recording(capsys: Capture, fake: None) -> None:
    status, out, err = run(capsys, "transcribe", "one.wav", "exit.wav", "two.wav", "-m", "sensevoice")
    assert status == 1 and [Path(line).name for line in out] == ["one.wav", "two.wav"]
    assert len(err) == 1 and "ended with status 3 while transcribing" in err[0]


def test_exception_in_a_model_raises_one_line_error_and_exit_1(capsys: Capture, fake: None) -> None:
    status, out, err = run(capsys, "transcribe", "fault.wav", "-m", "sensevoice")
    assert (status, out) == (1, [])
    assert err == ["workbench: sensevoice on pytorch failed: ValueError: first line second line"]


def test_internal_error_is_one_line_with_a_traceback_under_workbench_debug(
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
