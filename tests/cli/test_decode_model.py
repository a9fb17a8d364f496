"""`workbench decode --model`: the logits in a trace give the transcript of the model that computed them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.support.nano_ctc import lively_checkpoint
from tests.support.tiny_checkpoints import noise, tiny_sensevoice
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from workbench.cli.commands import main
from workbench.conversion import funasr_nano, sensevoice, writer
from workbench.core.settings import Settings
from workbench.runtimes.pytorch import funasr_nano as nano_on_pytorch
from workbench.runtimes.pytorch import sensevoice as sensevoice_on_pytorch

AUDIO = noise(2.0)
BEAM: dict[str, Any] = {"beam_size": 8, "nbest": 3}
FLAGS = ("--beam-size", "8", "--nbest", "3")
CASES = {"sensevoice": (sensevoice, sensevoice_on_pytorch), "funasr_nano": (funasr_nano, nano_on_pytorch)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint and a GGUF file of each family, and the checkpoint's transcript with its trace."""
    folder = tmp_path_factory.mktemp("models")
    tiny_sensevoice(folder / "sensevoice")
    lively_checkpoint(folder / "funasr_nano", AUDIO)
    for family, (conversion, runtime) in CASES.items():
        writer.write(conversion.plans(folder / family, "workbench"), "f32", folder / f"{family}.gguf")
        session = runtime.open_session(folder / family, family, Settings(threads=1))
        session.trace(AUDIO, "*logits", beam_size=1).save(folder / f"{family}.safetensors")
        session.trace(AUDIO, "*", **BEAM).save(folder / f"{family}_whole.safetensors")
        transcript = session.transcribe(AUDIO, **BEAM)
        (folder / f"{family}.json").write_text(
            json.dumps([transcript.text, [each.score for each in transcript.hypotheses]])
        )
        session.close()
    return folder


@pytest.mark.parametrize("family", CASES)
def test_decoded_trace_matches_the_transcript_of_the_model(
    family: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    text, scores = json.loads(Path(f"{family}.json").read_text())
    for model in (family, f"{family}.gguf"):
        files = (f"{family}.safetensors", f"{family}_whole.safetensors")
        assert main(["decode", *files, "--model", model, *FLAGS, "--json"]) == 0
        out, err = capsys.readouterr()
        assert not err
        for line in out.splitlines():
            hypotheses = json.loads(line)["hypotheses"]
            assert hypotheses[0]["text"] == text and text
            assert [each["score"] for each in hypotheses] == pytest.approx(scores, abs=1e-9)


def test_ctc_beam_search_of_model_in_python_matches_the_transcript(folder: Path) -> None:
    text, scores = json.loads((folder / "sensevoice.json").read_text())
    with workbench.CtcBeamSearch.of_model(folder / "sensevoice", **BEAM) as search:
        hypotheses = search.decode(folder / "sensevoice_whole.safetensors")
    assert hypotheses[0].text == text and [each.score for each in hypotheses] == pytest.approx(scores, abs=1e-9)


def test_bad_input_raises_one_line_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(folder)
    tiny_funasr_nano(tmp_path / "plain")
    cases = {
        ("sensevoice.safetensors", "-m", "funasr_nano"): "wide and the list of tokens has 12 tokens",
        ("sensevoice.safetensors", "-m", "demo/paraformer"): "has no CTC head",
        ("sensevoice.safetensors", "-m", str(tmp_path / "plain")): "names no ctc_decoder",
        ("sensevoice.safetensors", "-m", "sensevoice", "--blank", "0"): "leave out --blank",
        ("funasr_nano_whole.safetensors", "-m", "sensevoice"): "arrays",
        ("sensevoice.safetensors", "-m", "nothing"): "nothing",
    }
    for words, expected in cases.items():
        assert main(["decode", *words, "--json"]) == 2
        out, err = capsys.readouterr()
        assert not out and err.count("\n") == 1 and expected in err, (words, err)
