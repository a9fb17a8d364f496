"""Which models can be opened on which runtime, and the reasons against it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_checkpoints import tiny_sensevoice
from tests.support.user_cards import AddCard
from workbench.artifacts import vllm_directories as served
from workbench.core.errors import BadInput, Unavailable
from workbench.core.settings import SessionSpec
from workbench.registry.budget import estimated_bytes
from workbench.registry.registry import Registry


def test_availability_names_the_reason(
    registry: Registry, add_card: AddCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_card("here", tiny_sensevoice(tmp_path / "here"))
    add_card("away", "nowhere")
    add_card("barred", tmp_path / "here", extra='runtimes = { pytorch = "this one is for show" }')

    def reason_of(name: str, runtime: str = "pytorch") -> str | None:
        state = registry.availability(registry.card(name), runtime)
        assert state.ready == (state.reason is None)
        return state.reason

    assert reason_of("here") is None
    assert reason_of("away") == f"its checkpoint directory {tmp_path / 'nowhere'} is missing"
    assert reason_of("barred") == "this one is for show"
    assert (
        reason_of("here", "vllm")
        == "SenseVoice has no autoregressive part, so there is nothing for vLLM to serve; use pytorch or gguf"
    )
    hub = registry.availability(registry.card("sensevoice-small"), "pytorch")
    assert (
        not hub.ready and hub.fetches and "opening it fetches FunAudioLLM/SenseVoiceSmall (940 MB)" in str(hub.reason)
    )
    monkeypatch.setattr("workbench.core.packages.find_spec", lambda name: None)
    assert reason_of("here") == (
        "PyTorch needs the Python package torch, which is not installed; run: pip install torch"
    )
    with pytest.raises(Unavailable, match=r"^here cannot run on pytorch: PyTorch needs the Python package torch"):
        registry.open("here")


def test_card_with_an_unknown_family_is_refused(registry: Registry, add_card: AddCard, tmp_path: Path) -> None:
    add_card("odd", tmp_path, family="whisper")
    odd = r"^model 'odd' in models\.toml cannot be used: its card names the family 'whisper'; expected one of sensev"
    for use in (registry.card, registry.open, registry.options_class):
        with pytest.raises(BadInput, match=odd):
            use("odd")


def test_the_system_says_why_it_does_not_look_at_a_model(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(BadInput, match=r"loop cannot be read: Too many levels of symbolic links$"):
        registry.open(loop)
    look = Path.stat

    def stat(path: Path, **options: Any) -> Any:
        if "locked" in path.parts:  # below which root may look all the same
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(BadInput, match=r"locked/here cannot be read: Permission denied$"):
        registry.open(tmp_path / "locked" / "here")
    with pytest.raises(BadInput, match=r"^there is no model 'x+"):
        registry.open("x" * 5000)


def test_unreadable_folder_in_a_checkpoint_does_not_break_the_listing(
    registry: Registry, add_card: AddCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_card("here", tiny_sensevoice(tmp_path / "here"))
    locked = tmp_path / "here" / "locked"
    locked.mkdir()
    inside = Path.iterdir

    def iterdir(folder: Path) -> Any:
        if folder == locked:  # which root may read all the same
            raise PermissionError(13, "Permission denied", str(folder))
        return inside(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    card = registry.card("here")
    assert registry.weights(card, "gguf") == ()
    assert registry.availability(card, "pytorch").ready
    assert estimated_bytes(SessionSpec("here", "sensevoice", "pytorch", tmp_path / "here")) > 0


def test_damaged_converted_files_are_converted_again_before_the_next_load(
    registry: Registry, add_card: AddCard, tmp_path: Path, fake: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    add_card("mine", tmp_path / "here", family="funasr_nano")
    monkeypatch.setattr("workbench.core.packages.find_spec", lambda name: name)

    def convert(request: dict[str, Any], *_: Any) -> dict[str, Any]:
        Path(request["served"]).mkdir()
        (Path(request["served"]) / "config.json").write_text("whole")
        return {"path": request["served"], "outside": []}

    monkeypatch.setattr(served, "run_child", convert)
    with registry.open("mine", runtime="vllm") as session:
        config = session.session.spec.checkpoint / "config.json"  # type: ignore[attr-defined]
        assert session.transcribe("x").text.endswith("x")
        config.write_text("cut")
        registry.unload("mine", "vllm")
        assert session.transcribe("x").text.endswith("x") and config.read_text() == "whole"


def test_unsupported_runtime_is_refused_without_fallback(registry: Registry, tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "tiny")
    with pytest.raises(Unavailable, match="cannot run on vllm: SenseVoice has no autoregressive part"):
        registry.open(directory, runtime="vllm")
    with pytest.raises(BadInput, match="there is no runtime 'onnx'; expected one of pytorch, gguf, vllm"):
        registry.open(directory, runtime="onnx")
    with pytest.raises(BadInput, match="threads is 0; expected 1 to 1024"):
        registry.open(directory, threads=0)
    assert registry.residents() == []


def test_a_checkpoint_on_the_hub_cannot_be_opened_offline(registry: Registry) -> None:
    with pytest.raises(
        Unavailable, match="sensevoice-small is not on this machine, and the Hugging Face hub cannot be reached"
    ):
        registry.open("sensevoice-small")
