"""`workbench generate`, `inject` and `trace` with a language model: prompts, embeddings, notes, standard input."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.command_line import Capture, lasting, run
from workbench.cli.commands import main
from workbench.trace.trace import Trace

pytestmark = pytest.mark.usefixtures("in_folder")


@lasting
def test_text_is_generated_after_a_prompt(
    capsys: Capture, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("-m", "qwen3", "--max-new-tokens", "8", "--min-new-tokens", "8")
    assert main(["generate", "hello", *words, "--format", "json"]) == 0
    generation = json.loads(capsys.readouterr().out)
    assert list(generation)[:4] == ["model", "runtime", "text", "tokens"] and len(generation["tokens"]) == 8
    assert 0 < generation["first_token_seconds"] < generation["compute_seconds"] and generation["load_seconds"] > 0
    assert main(["generate", "hello", *words]) == 0
    captured = capsys.readouterr()
    assert captured.out == generation["text"] + "\n"
    assert captured.err == "qwen3: cut off after 8 tokens; see --max-new-tokens\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    assert main(["generate", "-", *words]) == 0
    assert capsys.readouterr().out == generation["text"] + "\n"


@pytest.mark.parametrize("form", ["text", "json"])
def test_generation_notes_go_to_stderr(capsys: Capture, fake: None, form: str) -> None:
    status, _, err = run(capsys, "generate", "noted", "-m", "qwen3", "--format", form)
    assert (status, err) == (0, ["fake: this is a note"])


@lasting
def test_alternatives_are_listed_beside_the_text(capsys: Capture, folder: Path) -> None:
    words = ("generate", "hello", "-m", "qwen3", "--max-new-tokens", "3", "--alternatives", "2")
    status, [line], _ = run(capsys, *words, "--format", "json")
    generation = json.loads(line)
    likeliest = [step[0]["id"] for step in generation["alternatives"]]
    assert (
        status == 0 and likeliest == generation["tokens"] and {len(step) for step in generation["alternatives"]} == {2}
    )
    status, out, err = run(capsys, *words)
    assert (status, out) == (0, [generation["text"]])
    assert [line.split()[0] for line in err[:3]] == ["1", "2", "3"]
    assert all(line.count("*") == 1 and line.endswith("%") for line in err[:3])


@lasting
def test_embeddings_are_injected(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(3, 32)).astype(np.float32)
    np.save(tmp_path / "one.npy", values[:2])
    np.savez(tmp_path / "two.npz", speech=values[2:], other=values)
    words = ("inject", "-m", "qwen3", "--no-chat", "--max-new-tokens", "4", "--embedding", str(tmp_path / "one.npy"))
    second_file = ("--embedding", str(tmp_path / "two.npz"))
    prompt = "say <|fim_pad|><|fim_pad|>"
    status, [line], _ = run(capsys, *words, *second_file, "--tensor", "speech", "--prompt", prompt, "--format", "json")
    generation = json.loads(line)
    assert status == 0 and len(generation["tokens"]) == 4 and generation["prompt_tokens"] > 3
    monkeypatch.setattr("sys.stdin", io.StringIO(prompt + "\n"))
    status, out, _ = run(capsys, *words, *second_file, "--tensor", "speech", "--prompt", "-")
    assert status == 0 and out == generation["text"].splitlines()
    status, _, [error] = run(capsys, *words, *second_file, "--prompt", prompt)
    assert status == 2 and "two.npz holds 2 tensors: " in error and error.endswith("see --tensor")
    three_files = (*words, *second_file, *second_file, "--prompt", prompt.replace(" ", " <|fim_pad|>"))
    outputs = [run(capsys, *three_files, *names)[1] for names in (("--tensor", "other"), ("--tensor", "speech"))]
    mixed = run(capsys, *three_files, "--tensor", "speech", "--tensor", "other", "--format", "json")
    assert (
        mixed[0] == 0
        and json.loads(mixed[1][0])["prompt_tokens"] - generation["prompt_tokens"] == 3
        and outputs[0] != outputs[1]
    )
    status, _, [error] = run(capsys, *three_files, *["--tensor", "speech"] * 3)
    assert status == 2 and "--tensor is given 3 times, and --embedding 2 files with several tensors" in error
    status, _, [error] = run(capsys, *words, "--tensor", "speech", "--prompt", "say <|fim_pad|>")
    assert status == 2 and "one.npy holds one tensor without a name; expected no name" in error
    status, _, [error] = run(capsys, *words, "--vad", "silero", "--prompt", "say <|fim_pad|>")
    assert status == 2 and "has no option vad; it has max_new_tokens," in error
    status, _, [error] = run(capsys, *words, "--prompt", "say")
    assert status == 2 and error.endswith('expected one for each, as in "What is said here: <|fim_pad|>"')
    status, _, [error] = run(capsys, *words, "--embedding", "gone.npy", "--prompt", prompt)
    assert status == 2 and "gone.npy cannot be read: there is no such file" in error


@lasting
def test_a_prompt_is_traced(capsys: Capture, tmp_path: Path) -> None:
    out_file = tmp_path / "t.safetensors"
    words = ("trace", "hello", "-m", "qwen3", "--out", str(out_file), "--stages", "logits,tokens", "--no-chat")
    status, out, err = run(capsys, *words, "--max-new-tokens", "4")
    further_stages = ["tokens.alternatives", "tokens.logprobs"]
    assert (status, err) == (0, []) and [line.split("\t")[0] for line in out] == ["logits", "tokens", *further_stages]
    assert Trace.load(out_file).meta["options"] == {"chat": False, "max_new_tokens": 4}


@lasting
def test_an_empty_prompt_on_stdin_is_bad_input(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    status, out, err = run(capsys, "generate", "-", "-m", "qwen3")
    assert (status, out, err) == (2, [], ["workbench: the prompt is empty; expected a text"])


@lasting
def test_invalid_utf8_on_stdin_is_refused(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8"))
    status, out, err = run(capsys, "generate", "-", "-m", "qwen3")
    assert (status, out, len(err)) == (2, [], 1) and err[0].startswith(
        "workbench: the prompt on stdin is not utf-8 text"
    )
