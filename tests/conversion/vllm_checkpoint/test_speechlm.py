"""A SpeechLM written for vLLM, which stays a checkpoint for the other runtimes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("transformers", reason="needs transformers")

from safetensors.torch import load_file, save_file  # noqa: E402

from tests.support.sound_files import white_noise  # noqa: E402
from tests.support.speechlm_gguf import speechlm_file  # noqa: E402
from tests.support.tiny_speechlm import SEMANTIC, tiny_espnet_release, tiny_speechlm  # noqa: E402
from workbench.conversion.vllm_checkpoint.checkpoint import plan_of  # noqa: E402
from workbench.conversion.vllm_checkpoint.directory import write_directory  # noqa: E402
from workbench.core.settings import Settings  # noqa: E402
from workbench.families.speechlm.model import read_speechlm  # noqa: E402
from workbench.formats.gguf_file import read_gguf  # noqa: E402
from workbench.runtimes.gguf.files.unpacking import unpacked  # noqa: E402
from workbench.runtimes.pytorch.speechlm import open_session  # noqa: E402

TIED = {"tie_word_embeddings": True}
OUTPUT, EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"


def change_output(directory: Path, output: Any) -> None:
    """Replaces the output matrix in the shards of a checkpoint; takes it out if `output` is None."""
    for shard in directory.glob("model-*.safetensors"):
        tensors = load_file(shard)
        if tensors.pop(OUTPUT, None) is not None:
            save_file(tensors | ({} if output is None else {OUTPUT: output}), shard)


@pytest.mark.parametrize("stored", ["different", "equal", "missing"])
def test_output_matrix_is_written_if_it_differs_from_tied_embeddings(stored: str, tmp_path: Path) -> None:
    tiny = tiny_speechlm(tmp_path / "it", language=TIED)
    if stored != "different":
        change_output(tiny.directory, tiny.tensors[EMBEDDINGS].clone() if stored == "equal" else None)
    served = tmp_path / "served"
    write_directory(plan_of(tiny.directory, "speechlm"), served)
    tensors, config = load_file(served / "model.safetensors"), json.loads((served / "config.json").read_text())
    assert (OUTPUT in tensors) == (stored == "different")
    assert config["tie_word_embeddings"] == (stored != "different")
    answers = []
    for directory in (tiny.directory, served):
        session = open_session(directory, "tiny", Settings(threads=1))
        answers.append(session.converse("hello", modalities="text", temperature=0.0, max_text_tokens=8).token_ids)
        session.close()
    assert answers[0] == answers[1]


@pytest.mark.parametrize("inside", [False, True])
def test_codec_with_a_batch_norm_is_written(inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SEMANTIC, "conv_pos_batch_norm", True)
    tiny = tiny_speechlm(tmp_path / "it", codec_inside=inside)
    served = tmp_path / "served"
    write_directory(plan_of(tiny.directory, "speechlm"), served)
    spoken = {"role": "assistant", "content": [{"type": "audio", "audio": white_noise(0.5)}]}
    messages = [{"role": "user", "content": "a"}, spoken, {"role": "user", "content": "b"}]
    answers = []
    for directory in (tiny.directory, served):
        session = open_session(directory, "tiny", Settings(threads=1))
        answers.append(session.converse(messages, modalities="text", temperature=0.0, max_text_tokens=8).token_ids)
        session.close()
    assert answers[0] == answers[1]


@pytest.mark.parametrize("make", [tiny_speechlm, tiny_espnet_release])
def test_directory_for_vllm_is_converted_to_a_gguf_file_that_opens(make: Any, tmp_path: Path) -> None:
    served = tmp_path / "served"
    write_directory(plan_of(make(tmp_path / "it").directory, "speechlm"), served)
    expected = read_speechlm(served)
    file = read_gguf(speechlm_file(served))
    with unpacked(file) as directory:
        actual = read_speechlm(directory, weights=file.path)
    assert (actual.layout, actual.settings, actual.tower) == (expected.layout, expected.settings, expected.tower)
    assert actual.tokenizer.encode("one two 3") == expected.tokenizer.encode("one two 3")
