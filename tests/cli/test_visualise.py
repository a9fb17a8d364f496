"""`workbench visualise`: the picture file, the printed lines, and one-line errors with exit status 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.visualise.conftest import SAMPLE
from workbench.audio import check
from workbench.cli import commands
from workbench.registry.registry import Registry
from workbench.visualise.views import VIEWS

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *words: str) -> tuple[int, list[str], list[str]]:
    status = commands.main(["visualise", *words])
    out, err = capsys.readouterr()
    return status, out.splitlines(), err.splitlines()


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions run in this process, because they start sooner there."""
    monkeypatch.setattr("workbench.cli.visualise.Registry", lambda: Registry(isolate=False))


def test_the_beginning_of_a_recording_is_read_once(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paths: list[Path] = []
    inner = check.blocks_of
    monkeypatch.setattr(check, "blocks_of", lambda path: paths.append(path) or inner(path))
    words = ("-m", "demo/sensevoice", "--view", "cif", "--out", str(tmp_path / "picture.svg"))
    assert run(capsys, str(SAMPLE), *words)[0] == 2 and paths == [SAMPLE]


def test_a_picture_is_written_and_its_layers_are_printed(capsys: Capture, in_process: None, tmp_path: Path) -> None:
    out = tmp_path / "picture.svg"
    words = ("--model", "demo/sensevoice", "--view", "attention", "--layer", "3", "--attention", "mean")
    status, lines, err = run(capsys, str(SAMPLE), *words, "--language", "en", "--out", str(out))
    assert (status, err) == (0, []) and lines[0] == "attention\timage\t35×35"
    assert "mean of 4 heads of encoder.layers.3" in out.read_text(encoding="utf-8")
    status, lines, err = run(
        capsys, str(SAMPLE), "-m", "demo/sensevoice", "--view", "attention", "--layer", "30", "--out", str(out)
    )
    assert status == 2 and err == [
        "workbench: demo/sensevoice has 7 layers in encoder, but layer 30 is requested; expected 0 to 6"
    ]


def test_list_option_prints_the_views_of_a_model(capsys: Capture) -> None:
    status, lines, err = run(capsys, "--list", "--model", "demo/paraformer")
    assert (status, err) == (0, []) and [line.partition(":")[0] for line in lines] == list(VIEWS)
    assert "ctc: not for this model; it has no CTC head" in lines and lines[3] == f"cif: {VIEWS['cif'].sentence}"
    status, lines, err = run(capsys, "--list", "--model", "demo/funasr-nano", "--runtime", "vllm")
    assert any(line.startswith("lens: not for this model; it does not go on from given stages") for line in lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--view", "cifs", "--out", "a.png"), "there is no view 'cifs'; did you mean cif?"),
        (
            ("--view", "cif", "--out", "a.pdf"),
            "'a.pdf' is not the name of a picture; expected one that ends in .png, .svg, .npz",
        ),
        (("--view", "cif", "--out", "picture"), "'picture' is not the name of a picture"),
        (("--view", "cif", "--out", "."), "'.' is not the name of a picture"),
        (("--view", "cif", "--out", "nowhere/a.png"), "there is no folder nowhere"),
        (("--view", "cif"), "no file is named for the picture; expected --out"),
        (("--view", "cif", "--layer", "1", "--out", "a.png"), "the view cif has no option layer; it has none"),
        (("--view", "attention", "--head", "-2", "--out", "a.png"), "option head of the view attention is -2"),
        (
            ("--view", "attention", "--attention", "all", "--out", "a.png"),
            "expected one of heads, mean, rollout, token",
        ),
    ],
)
def test_bad_input_is_refused_before_the_model_is_loaded(
    words: tuple[str, ...], message: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Registry, "open", lambda *_, **__: pytest.fail("a model was opened"))
    status, out, err = run(capsys, str(SAMPLE), "--model", "demo/paraformer", *words)
    assert (status, out) == (2, []) and len(err) == 1 and message in err[0] and list(tmp_path.iterdir()) == []


def test_unavailable_view_is_refused_before_the_model_is_loaded(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Registry, "open", lambda *_, **__: pytest.fail("a model was opened"))
    status, _, err = run(
        capsys, str(SAMPLE), "-m", "demo/paraformer", "--view", "ctc", "--out", str(tmp_path / "a.png")
    )
    assert status == 2 and err == ["workbench: demo/paraformer on pytorch has no view ctc: it has no CTC head"]
