"""The family of a GGUF file by its architecture."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFWriter

from workbench.core.errors import BadInput
from workbench.families import FAMILIES, load
from workbench.families.gguf_files import NANO_ENCODER, architectures, family_of_gguf


def empty_gguf(path: Path, architecture: str | None) -> Path:
    """Writes a GGUF file of the architecture without tensors; returns its path."""
    writer = GGUFWriter(path, architecture or "")
    if architecture is None:
        writer.kv_data[0].clear()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("architecture", "family"),
    [
        ("sensevoice-small", "sensevoice"),
        ("paraformer", "paraformer"),
        ("funasr-sensevoice-encoder", "funasr_nano"),
        ("funasr-nano", "funasr_nano"),
        ("fireredasr-llm", "fireredasr"),
        ("fsmn-vad", "fsmn_vad"),
        ("qwen2", "causal_lm"),
        ("qwen3", "causal_lm"),
        ("llama", "causal_lm"),
        ("mistral", "causal_lm"),
    ],
)
def test_gguf_architecture_selects_the_family(tmp_path: Path, architecture: str, family: str) -> None:
    assert family_of_gguf(empty_gguf(tmp_path / "it.gguf", architecture)) is FAMILIES[family]


def test_architectures_written_by_converters_are_known() -> None:
    known = architectures()
    assert known[NANO_ENCODER] is FAMILIES["funasr_nano"]
    for family in FAMILIES.values():
        own = getattr(load(family.gguf.converter), "ARCHITECTURE", None) if family.gguf.converter else None
        assert own is None or known[own] is family


def test_unknown_architecture_error_lists_the_known_architectures(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"it.gguf is of architecture 'whisper'; expected one of sensevoice-small, .*qwen3"
    ):
        family_of_gguf(empty_gguf(tmp_path / "it.gguf", "whisper"))


def test_missing_architecture_key_or_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"it.gguf has no metadata key general.architecture"):
        family_of_gguf(empty_gguf(tmp_path / "it.gguf", None))
    with pytest.raises(BadInput, match="there is no GGUF file"):
        family_of_gguf(tmp_path / "no.gguf")
