"""`workbench trace`: the trace file, the list of stages, and refused input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.command_line import Capture, run
from tests.support.tiny_checkpoints import noise, tiny_paraformer, tiny_sensevoice
from tests.support.tiny_language import tiny_language
from workbench.audio.read import write_wav
from workbench.core.errors import BadInput
from workbench.registry.registry import Registry
from workbench.trace.trace import Trace

pytestmark = pytest.mark.usefixtures("lasting_sessions")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models and a recording."""
    folder = tmp_path_factory.mktemp("traces")
    tiny_sensevoice(folder / "sensevoice")
    tiny_paraformer(folder / "paraformer")
    tiny_language(folder / "language")
    write_wav(folder / "short.wav", noise(1.0)[0])
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_a_trace_is_written_and_listed(capsys: Capture, tmp_path: Path) -> None:
    out_file = tmp_path / "t.safetensors"
    words = ("trace", "short.wav", "-m", "paraformer", "-r", "pytorch", "--out", str(out_file))
    status, out, err = run(capsys, *words, "--stages", "encoder.*,tokens,text", "--cmvn", "off")
    assert (status, err) == (0, [])
    trace = Trace.load(out_file)
    assert [line.split("\t")[0] for line in out] == list(trace)
    assert {"encoder.output", "tokens", "text"} <= set(trace) and "logits" not in trace
    assert trace.meta["options"] == {"cmvn": "off"} and trace.meta["model"] == "paraformer"
    assert [line for line in out if line.startswith("text\t")] == [f"text\t{trace['text']}\ttext"]


def test_multi_line_stage_text_is_listed_on_one_line(capsys: Capture, tmp_path: Path) -> None:
    out_file = tmp_path / "t.safetensors"
    words = ("trace", "short.wav", "-m", "demo/funasr-nano", "--out", str(out_file), "--stages", "prompt.*")
    status, out, err = run(capsys, *words)
    assert (status, err) == (0, []) and "\n" in str(Trace.load(out_file)["prompt.text"])
    assert [line.split("\t")[0] for line in out] == ["prompt.tokens", "prompt.text"]


def test_float64_trace_distinguishes_noise_from_bugs(capsys: Capture, tmp_path: Path) -> None:
    files = {dtype: str(tmp_path / f"{dtype}.safetensors") for dtype in ("float32", "float64")}
    for dtype, file in files.items():
        words = ("trace", "short.wav", "-m", "sensevoice", "--dtype", dtype, "--stages", "encoder.*,logits")
        status, out, err = run(capsys, *words, "--out", file)
        assert (status, err) == (0, []) and {line.split("\t")[2] for line in out} == {dtype}
    status, out, _ = run(capsys, "compare", files["float32"], files["float32"], "--float64", files["float64"])
    assert status == 0 and "Arithmetic noise: at logits the candidate's distance from float64 is " in out[1]


def test_given_option_substitutes_stages_of_another_trace(capsys: Capture, tmp_path: Path) -> None:
    full, part = tmp_path / "whole.safetensors", tmp_path / "part.safetensors"
    words = ("trace", "short.wav", "-m", "sensevoice", "--stages", "encoder.*,logits", "--out")
    assert run(capsys, *words, str(full), "--language", "en")[0] == 0
    status, _, err = run(capsys, *words, str(part), "--given", str(full))
    assert (status, err) == (0, []) and Trace.load(part).meta["isolated"] is True
    status, out, _ = run(capsys, "compare", str(full), str(part))
    assert status == 1
    assert out[0].startswith("Computed from the reference's own inputs, encoder.input is the first stage ")
    status, out, err = run(capsys, *words, str(part), "--given", "nowhere.npz")
    assert (status, out, len(err)) == (2, [], 1) and "there is no trace" in err[0] and "nowhere.npz" in err[0]


def test_comparison_with_substituted_candidate_stages_uses_float64(capsys: Capture, tmp_path: Path) -> None:
    port, reference, exact = (str(tmp_path / f"{name}.safetensors") for name in ("port", "reference", "exact"))
    words = ("trace", "short.wav", "-m", "sensevoice", "--stages", "encoder.*,logits", "--out")
    assert run(capsys, *words, port)[0] == 0
    trace = Trace.load(port)
    altered = {**trace, "encoder.layers.1": trace["encoder.layers.1"] * (1 + 3e-5)}
    Trace(altered, {"dtype": "float32"}).save(port)  # as another program could write it
    assert run(capsys, *words, reference, "--given", port)[0] == 0
    assert run(capsys, *words, exact, "--given", port, "--dtype", "float64")[0] == 0
    status, out, _ = run(capsys, "compare", reference, port, "--float64", exact)
    assert status == 1 and "encoder.layers.1 is the first stage " in out[0]
    assert out[0].startswith("Computed from the candidate's own inputs, ") and "though within tolerance f32" in out[0]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--out", "nowhere/t.safetensors"), "the trace cannot be written to nowhere/t.safetensors: there is no fold"),
        (
            ("--out", f"{'a' * 240}.safetensors"),
            f"the trace cannot be written to {'a' * 240}.safetensors: File name too",
        ),
        (("--out", "."), "the trace cannot be written to .: it is a folder"),
        (("--out", "t.npz"), "the trace cannot be written to t.npz: expected a name that ends in .safetensors"),
        (("--out", "t.safetensors", "--stages", ","), "the stage pattern is empty"),
    ],
)
def test_unwritable_trace_path_is_refused_before_loading(
    capsys: Capture, words: tuple[str, ...], sentence: str
) -> None:
    status, out, err = run(capsys, "trace", "short.wav", "-m", "no-such-model", *words)
    assert (status, out, len(err)) == (2, [], 1) and err[0].startswith(f"workbench: {sentence}")


def test_stepwise_trace_rounds_every_stage_to_bfloat16(capsys: Capture, tmp_path: Path) -> None:
    out_file = str(tmp_path / "t.safetensors")
    words = ("trace", "short.wav", "-m", "paraformer", "--stages", "encoder.*,tokens", "--stepwise", "--out", out_file)
    status, _, err = run(capsys, *words, "--dtype", "bfloat16")
    trace = Trace.load(out_file)
    assert (status, err) == (0, []) and trace.meta["dtype"] == "bfloat16"
    assert not (trace["encoder.output"].view(np.uint32) & 0xFFFF).any(), "it is rounded to bfloat16"
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, []) and err == [
        "workbench: stepwise is on, and dtype is float32; expected bfloat16 or float16 beside it"
    ]


def test_language_model_refuses_to_trace_a_recording(capsys: Capture, tmp_path: Path) -> None:
    words = ("short.wav", "-m", "language", "--out", str(tmp_path / "t.safetensors"))
    status, out, err = run(capsys, "trace", *words)
    assert (status, out, list(tmp_path.iterdir())) == (2, [], [])
    assert err == [
        "workbench: 'short.wav' is the name of a recording, and language continues a text; expected the text "
        "itself, such as 'Count from two to six.', or - to read it from standard input"
    ]
    with Registry(isolate=False) as registry, registry.open("language") as session:
        for source in ("short.wav", Path("short.wav")):
            with pytest.raises(
                BadInput, match=r"^'short\.wav' is the name of a recording, and language continues a text"
            ):
                session.trace(source)


def test_stage_pattern_without_a_match_writes_no_file(capsys: Capture, tmp_path: Path) -> None:
    out_file = tmp_path / "t.safetensors"
    status, out, err = run(
        capsys, "trace", "short.wav", "-m", "sensevoice", "--out", str(out_file), "--stages", "decoder.*"
    )
    assert (status, out, out_file.exists()) == (2, [], False)
    assert err == ["workbench: no stage of sensevoice on pytorch matches 'decoder.*'; '*' takes all stages"]


def test_a_prompt_with_embeddings_is_traced_and_compared(capsys: Capture, tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(3, 32)).astype(np.float32)
    np.save(tmp_path / "speech.npy", values)
    out = str(tmp_path / "t.safetensors")
    arguments = ("say <|fim_pad|>", "--embedding", str(tmp_path / "speech.npy"), "--no-chat", "--max-new-tokens", "4")
    status, _, err = run(capsys, "trace", "-m", "language", *arguments, "--stages", "llm.embeddings", "--out", out)
    assert (status, err) == (0, [])
    np.testing.assert_array_equal(Trace.load(out)["llm.embeddings"][-3:], values)
    status, lines, _ = run(capsys, "parity", "language", *arguments, "--candidates", "pytorch:f64", "--no-float64")
    assert status == 0 and lines[0].startswith("pytorch:f64 (within): Within tolerance f32")


def test_speech_recogniser_refuses_the_embedding_option(capsys: Capture, tmp_path: Path) -> None:
    np.save(tmp_path / "speech.npy", np.ones((2, 4), np.float32))
    words = ("-m", "sensevoice", "--embedding", str(tmp_path / "speech.npy"), "--out", str(tmp_path / "t.safetensors"))
    status, _, [error] = run(capsys, "trace", "short.wav", *words)
    assert status == 2 and "takes a recording; expected a language model" in error
