"""`workbench convert`: its output, and the errors of invalid requests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import gguf
import pytest

from tests.support.tiny_checkpoints import tiny_paraformer, tiny_sensevoice
from tests.support.tiny_language import tiny_language
from workbench.cli.commands import main


def test_convert_writes_the_file_and_prints_its_path_and_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "it.gguf"
    assert main(["convert", "demo/sensevoice", "--quantization", "q5_1", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out}\t{out.stat().st_size}\n" and printed.err == ""
    assert gguf.GGUFReader(out).fields["workbench.quantization"].contents() == "q5_1"
    assert main(["convert", "demo/sensevoice", "--list"]) == 0
    assert json.loads(capsys.readouterr().out)["q5_1"] == out.stat().st_size


def test_convert_of_a_directory_in_funasr_layout_prints_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tiny_paraformer(tmp_path / "tiny")
    words = ["convert", str(directory), "--layout", "funasr"]
    assert main([*words, "-q", "auto", "--out", str(tmp_path / "it.gguf")]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("FunASR's C++ runtime cannot run tiny as it should") and printed.err.count("\n") == 1
    assert main([*words, "--list"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["f32", "f16", "q8_0"]


def test_convert_writes_a_directory_for_vllm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "it"
    assert main(["convert", "demo/funasr-nano", "--for", "vllm", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out}\t{sum(path.stat().st_size for path in out.rglob('*') if path.is_file())}\n"
    assert printed.err.startswith(f"a machine with this project installed serves it with: vllm serve {out} (with")
    assert printed.err.endswith(f"api_server --model {out})\n") and printed.err.count("\n") == 1
    assert json.loads((out / "config.json").read_text())["architectures"] == ["SpeechWorkbenchFunASRNano"]
    language = str(tiny_language(tmp_path / "tiny"))
    capsys.readouterr()  # transformers prints a progress bar
    for words, message in (
        (["demo/funasr-nano"], "--out is missing; give the directory to write"),
        (["demo/funasr-nano", "--out", str(out)], "it is a directory with files in it; expected a new one"),
        (["demo/funasr-nano", "--out", str(out / "no" / "it")], "there is no folder"),
        (["demo/funasr-nano", "-q", "f16", "--out", str(out)], "--quantization is about GGUF files"),
        (["demo/funasr-nano", "--layout", "funasr", "--out", str(out)], "--layout is about GGUF files"),
        (["demo/funasr-nano", "--force", "--out", str(out)], "--force is about GGUF files"),
        (["demo/funasr-nano", "--list"], "--list is about the types of GGUF files"),
        (["demo/sensevoice", "--out", str(tmp_path / "no")], "vLLM serves no models of the family 'sensevoice'"),
        ([language, "--out", str(tmp_path / "no")], "needs no conversion; vLLM loads it as it is: vllm serve"),
    ):
        assert main(["convert", *words, "--for", "vllm"]) == 2, words
        printed = capsys.readouterr()
        assert message in printed.err and printed.err.count("\n") == 1 and printed.out == ""


def test_invalid_convert_requests_print_one_line_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = str(tiny_sensevoice(tmp_path / "tiny"))
    out = str(tmp_path / "it.gguf")
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "sensevoice-small")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for words, message in (
        ([tiny], "--quantization is missing; give --quantization and --out, or --list"),
        ([tiny, "-q", "f16"], "--out is missing"),
        ([tiny, "-q", "q4_k", "--out", out], "quantization is 'q4_k'; expected one of auto, f32, f16, bf16, q8_0"),
        ([tiny, "-q", "q4_0", "--out", out, "--layout", "funasr"], "expected one of auto, f32, f16, q8_0"),
        ([tiny, "-q", "f16", "--out", str(tmp_path / "no" / "it.gguf")], "there is no folder"),
        (["demo/fireredasr", "-q", "f16", "--out", out, "--layout", "funasr"], "FunASR has no layout"),
        ([str(tmp_path / "other.gguf"), "-q", "f16", "--out", out], "other.gguf is a GGUF file already"),
        (["demo/nothing", "-q", "f16", "--out", out], "there is no model 'demo/nothing'"),
    ):
        assert main(["convert", *words]) == 2, words
        printed = capsys.readouterr()
        assert message in printed.err and printed.err.count("\n") == 1 and printed.out == ""
    (tmp_path / "tiny" / "model.pt").write_bytes(b"")
    assert main(["convert", tiny, "-q", "f16", "--out", out]) == 2
    assert "is truncated, damaged or not a torch file" in capsys.readouterr().err
    assert not Path(out).exists()


def test_unknown_model_is_reported_before_other_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "nope", "--out", "x.gguf"]) == 2
    assert capsys.readouterr().err.startswith("workbench: there is no model 'nope'")


def test_existing_file_is_overwritten_only_with_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny, out = str(tiny_sensevoice(tmp_path / "tiny")), tmp_path / "it.gguf"
    words = ["convert", tiny, "-q", "f16", "--out", str(out)]
    out.write_text("my thesis")
    with monkeypatch.context() as patch:
        patch.setattr(
            "workbench.registry.sources.fetch", lambda *_: pytest.fail("it is looked for before any download")
        )
        assert main(words) == 2
    assert out.read_text() == "my thesis"
    printed = capsys.readouterr()
    assert printed.err == f"workbench: {out} exists already; give another name, or --force to replace it\n"
    assert main([*words, "--force"]) == 0
    assert out.read_bytes().startswith(b"GGUF")
    assert main(["convert", tiny, "--list", "--out", str(out)]) == 0, "a list writes nothing"


def test_existing_file_of_a_pair_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["convert", "demo/funasr-nano", "-q", "f16", "--layout", "funasr", "--out", str(tmp_path / "it.gguf")]
    assert main(words) == 0
    pair = [Path(line.split("\t")[0]) for line in capsys.readouterr().out.splitlines()]
    assert len(pair) == 2
    for existing in pair:
        [other] = set(pair) - {existing}
        other.unlink()
        assert main(words) == 2
        assert f"{existing.name} exists already" in capsys.readouterr().err and not other.exists()
        assert main([*words, "--force"]) == 0
        capsys.readouterr()


SLOW = """
import sys, time
from pathlib import Path
from workbench.conversion import writer
from workbench.cli.program import main

def slowly(tensor, *_):
    print("writing", flush=True)
    time.sleep(600)

writer._write_tensor = slowly
sys.exit(main(["convert", "demo/sensevoice", "-q", "f16", "--out", sys.argv[1]]))
"""


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_convert_leaves_no_files(number: int, status: int, tmp_path: Path) -> None:
    out = tmp_path / "folder" / "it.gguf"
    out.parent.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        assert [path.suffix for path in out.parent.iterdir()] == [".part"]
        os.kill(process.pid, number)
        assert process.wait(120) == status, "it does not go on writing"
    assert not list(out.parent.iterdir())
