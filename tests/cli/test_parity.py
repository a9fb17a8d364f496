"""`workbench parity`: exit status, what goes to stdout and what to stderr."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.support.fake_lab import FakeRegistry, FakeSession, dies
from tests.support.networks import STAGES, computed
from workbench.cli import commands, sources
from workbench.core.errors import SessionDied
from workbench.system.streams import WatchedOutput

Capture = pytest.CaptureFixture[str]


class Registry(FakeRegistry):
    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.open_now == []


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Registry:
    registry = Registry()
    monkeypatch.setattr(commands, "Registry", lambda: registry)
    monkeypatch.setattr(sources, "check_sound", lambda path: None)  # the recordings are only names
    monkeypatch.chdir(tmp_path)
    return registry


def run(capsys: Capture, *words: str, source: str = "talk.wav") -> tuple[int, list[str], list[str]]:
    try:
        status = commands.main(["parity", "tiny", source, *words])
    except SystemExit as stop:
        status = int(stop.code or 0)
    out, err = capsys.readouterr()
    return status, out.splitlines(), err.splitlines()


def test_all_candidates_within_tolerance_exit_0(capsys: Capture, fakes: Registry) -> None:
    status, out, err = run(capsys, "--candidates", "gguf,gguf:q4_0", "--candidates", "vllm")
    assert status == 0 and err == []
    headings = [line.split(":")[0] for line in out[: out.index("")] if not line.startswith("  ")]
    assert headings[:3] == ["gguf (within)", "gguf", "vllm (within)"]
    table = out[out.index("") + 1 :]
    assert table[0].split() == ["relative", "L2", "gguf", "gguf:q4_0", "vllm"] and len(table) == 1 + len(STAGES)
    assert not any("!" in line for line in table)


def test_unexplained_layer_comes_with_the_advice_to_look_inside(capsys: Capture, fakes: Registry) -> None:
    advice = "workbench: gguf: --narrow also compares what is inside encoder.layers.3, and may find the cause there"
    fakes.faults["gguf"] = {"encoder.layers.3": lambda x: x + np.sin(np.arange(x.size)).reshape(x.shape)}
    assert run(capsys, "--candidates", "gguf")[2] == [advice]
    assert advice not in run(capsys, "--candidates", "gguf", "--narrow")[2]
    fakes.faults["gguf"] = {"encoder.layers.3": lambda x: 1.01 * x}  # the verdict names the factor
    assert run(capsys, "--candidates", "gguf")[2] == []


def test_candidate_beyond_tolerance_exits_1(capsys: Capture, fakes: Registry) -> None:
    fakes.faults["gguf"] = {"encoder.layers.3": lambda x: 1.01 * x}
    status, out, _ = run(capsys, "--candidates", "gguf,vllm", "--stages", "encoder.*")
    assert status == 1 and out[0].startswith("gguf (beyond): encoder.layers.3 is the first stage beyond")
    marked = [line.split()[0] for line in out if line.count("!") == 1 and line.startswith("encoder.")]
    assert marked[0] == "encoder.layers.3"


def test_dead_worker_exits_2_and_no_available_runtime_exits_3(capsys: Capture, fakes: Registry) -> None:
    fakes.missing["vllm"] = "vLLM is not installed"
    assert run(capsys, "--candidates", "vllm")[::2] == (3, ["workbench: vllm: vLLM is not installed"])
    fakes.acts["gguf"] = dies
    status, out, err = run(capsys, "--candidates", "vllm,gguf,pytorch")
    assert status == 2 and err[1] == "workbench: gguf: the process of tiny ended"
    assert out[2].startswith("pytorch (within): Identical")
    assert run(capsys, "--candidates", "pytorch", "--reference", "vllm")[::2] == (
        3,
        ["workbench: vLLM is not installed"],
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--candidates"),
        (("--candidates", "ggml"), "neither a runtime nor an existing trace"),
        (("--candidates", "gguf", "--report", "nowhere/out.html"), "not a place for a report"),
        (("--candidates", "gguf", "--report", "talk.wav"), "--report names talk.wav, which the same command uses"),
        (("--candidates", "gguf", "--report", "a.xml", "--junit", "a.xml"), "--junit names a.xml, which the same"),
        (("--candidates", "gguf", "--report", f"{'a' * 300}.html"), "the report cannot be written to aaa"),
        (("--candidates", "gguf", "--mapping", "names.toml"), "names.toml"),
        (("--candidates", "gguf", "--language", "xx"), "language"),
    ],
)
def test_bad_input_raises_one_line_error_and_exit_2(
    capsys: Capture, fakes: Registry, words: tuple[str, ...], message: str
) -> None:
    status, out, err = run(capsys, *words)
    assert (status, out, len(err)) == (2, [], 1) and message in err[0]
    assert fakes.traced == []


def test_language_model_refuses_recordings_and_accepts_text_of_any_length(capsys: Capture, fakes: Registry) -> None:
    fakes.family = "causal_lm"
    Path("my talk.wav").touch()
    for source in ("talk.wav", "my talk.wav"):
        status, out, err = run(capsys, "--candidates", "pytorch", source=source)
        assert (status, out, len(err)) == (2, [], 1) and fakes.traced == []
        assert f"'{source}' is the name of a recording, and tiny continues a text; expected the text itself" in err[0]
    for length in (255, 256, 999, 5000):
        status, out, err = run(capsys, "--candidates", "pytorch", "--json", source="a" * length)
        assert (status, err) == (0, []) and json.loads("\n".join(out))["source"].startswith("aaaa")


@pytest.mark.parametrize("error", [ZeroDivisionError("of ours"), BrokenPipeError(), SessionDied("killed")])
def test_program_failure_exits_2_not_1(
    capsys: Capture, fakes: Registry, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(session: FakeSession) -> None:
        raise error

    monkeypatch.setattr(WatchedOutput, "mute", lambda stdout: None)
    fakes.acts["pytorch"] = fails
    assert run(capsys, "--candidates", "gguf")[0] == 2


def test_settings_and_options_reach_the_sessions(capsys: Capture, fakes: Registry) -> None:
    words = ("--candidates", "gguf+dither=2", "--no-float64", "--threads", "1", "--cmvn", "off", "--kv-cache", "f16")
    assert run(capsys, *words)[0] == 0
    assert fakes.traced == [
        ("pytorch", {"dtype": "float32", "threads": 1}, {"cmvn": "off"}),
        ("gguf", {"threads": 1, "kv_cache": "f16"}, {"cmvn": "off", "dither": 2.0}),
    ]


def test_parity_writes_report_json_and_traces(capsys: Capture, fakes: Registry, tmp_path: Path) -> None:
    computed(reverse=True).save(tmp_path / "port.safetensors")
    words = ("--candidates", "port.safetensors", "--report", "out.html", "--keep", "kept", "--json")
    status, out, _ = run(capsys, *words)
    assert status == 0 and json.loads("\n".join(out))["candidates"][0]["status"] == "within"
    assert (tmp_path / "out.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (tmp_path / "kept" / "reference-pytorch.safetensors").is_file()


def test_isolated_parity_names_every_faulty_stage(capsys: Capture, fakes: Registry) -> None:
    fakes.faults["gguf"] = {"encoder.layers.3": lambda x: 1.01 * x}
    status, out, err = run(capsys, "--candidates", "gguf,vllm", "--isolated")
    assert status == 1 and out[0].startswith(
        "gguf (beyond): Computed from the reference's own inputs, encoder.layers.3"
    )
    vllm, mode = [line for line in out[1 : out.index("")] if not line.startswith("  ")]
    assert vllm.startswith("vllm (unavailable): vLLM goes through all layers by itself") and len(err) == 1
    assert mode.startswith("Isolated: every stage is computed from the reference's own inputs")
    assert [line.split()[0] for line in out[out.index("") :] if "!" in line] == ["encoder.layers.3"]
    assert json.loads("\n".join(run(capsys, "--candidates", "gguf", "--isolated", "--json")[1]))["isolated"] is True


def test_dump_folder_is_compared_isolated_in_one_command(capsys: Capture, fakes: Registry, tmp_path: Path) -> None:
    """The dump has two faults, foreign names, and only the last row of the logits."""
    faults = {stage: lambda x: 1.01 * x for stage in ("encoder.layers.2", "encoder.layers.5")}
    trace = computed(faults=faults, reverse=True)
    (tmp_path / "dump").mkdir()
    for stage, array in trace.items():
        if stage.startswith("encoder.layers.") or stage == "logits":
            np.save(
                tmp_path / "dump" / stage.replace("encoder.layers.", "blk_"), array[-1:] if stage == "logits" else array
            )
    rules = '[stages]\n"encoder.layers.{n}" = "blk_{n}"\nlogits = { reference_rows = [-1] }\n'
    (tmp_path / "names.toml").write_text(rules, encoding="utf-8")
    words = ("--candidates", "dump", "--mapping", "names.toml", "--isolated")
    status, out, _ = run(capsys, *words)
    assert status == 1 and out[0].startswith(
        "dump (beyond): Computed from the candidate's own inputs, encoder.layers.2 is the first stage "
    )
    assert any("  A bug, not noise: at encoder.layers.2 the candidate's distance from " in line for line in out)
    mode = next(line for line in out[1:] if not line.startswith("  "))
    assert mode.startswith("Isolated: every stage of the reference is computed from the candidate's own inputs")
    assert [line.split()[0] for line in out if line.endswith("!")] == ["encoder.layers.2", "encoder.layers.5"]
    assert any(line.startswith("logits") for line in out)
    assert json.loads("\n".join(run(capsys, *words, "--json")[1]))["float64"] is True


def test_parity_with_a_baseline_exits_1_only_for_worse_results(
    capsys: Capture, fakes: Registry, tmp_path: Path
) -> None:
    fakes.faults["gguf"] = {"encoder.layers.3": lambda x: 1.01 * x}
    status, out, _ = run(capsys, "--candidates", "gguf", "--json")
    (tmp_path / "baseline.json").write_text("\n".join(out), encoding="utf-8")
    words = ("--candidates", "gguf", "--baseline", "baseline.json", "--junit", "out.xml", "--summary", "out.md")
    status_then, out, _ = run(capsys, *words)
    assert (status, status_then, out[0]) == (1, 0, "nothing worse than the baseline")
    assert out[1].startswith("gguf (beyond)")
    assert 'failures="0"' in (tmp_path / "out.xml").read_text() and (tmp_path / "out.png").is_file()
    fakes.faults["gguf"] = {"encoder.layers.2": lambda x: 1.01 * x}
    status, out, _ = run(capsys, *words)
    assert status == 1 and out[1].startswith("gguf got worse: encoder.layers.2 is beyond tolerance now")
    status, out, _ = run(capsys, *words, "--json")
    assert status == 1 and json.loads("\n".join(out))["worse"][0]["stage"] == "encoder.layers.2"
    for flags in (
        ("--baseline", "none.json"),
        ("--worse-by", "0.5"),
        ("--junit", "no/out.xml"),
        ("--summary", "no/o.md"),
    ):
        status, out, err = run(capsys, "--candidates", "gguf", *flags)
        assert (status, out, len(err)) == (2, [], 1)


@pytest.mark.parametrize("flag", ["--baseline", "--mapping"])
@pytest.mark.parametrize("pipe", ["pipe.toml", "/dev/zero"])
def test_pipe_or_device_as_input_file_is_refused_without_waiting(
    capsys: Capture, fakes: Registry, flag: str, pipe: str
) -> None:
    os.mkfifo("pipe.toml")
    status, out, err = run(capsys, "--candidates", "gguf", flag, pipe)
    assert (status, out, len(err)) == (2, [], 1)
    assert err[0].endswith(f"{pipe} cannot be read: it is a pipe or a device; expected a file")
