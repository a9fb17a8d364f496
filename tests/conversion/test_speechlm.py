"""A SpeechLM as a single GGUF file, from which configuration, tokenizer and tensors are read back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from tests.support.speechlm_gguf import speechlm_file
from tests.support.tiny_speechlm import TinySpeechLm, tiny_espnet_release, tiny_speechlm, write_codec, write_json
from workbench.conversion.plan import estimated_bytes
from workbench.conversion.speechlm import plans
from workbench.conversion.vllm_checkpoint.checkpoint import plan_of
from workbench.core.errors import BadInput, Unavailable
from workbench.families.gguf_files import LANGUAGE_ARCHITECTURE
from workbench.families.speechlm.model import read_speechlm
from workbench.formats.gguf_file import GgufFile, read_gguf
from workbench.runtimes.gguf.files.unpacking import unpacked


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[TinySpeechLm, GgufFile]]:
    root = tmp_path_factory.mktemp("speechlm")
    directories = {
        "directory": tiny_speechlm(root / "directory"),
        "release": tiny_espnet_release(root / "release", seed=2),
    }
    return {name: (tiny, read_gguf(speechlm_file(tiny.directory))) for name, tiny in directories.items()}


@pytest.mark.parametrize("form", ["directory", "release"])
def test_gguf_file_gives_the_same_configuration_and_tokenizer_as_the_checkpoint(
    form: str, forms: dict[str, tuple[TinySpeechLm, GgufFile]]
) -> None:
    tiny, file = forms[form]
    model = read_speechlm(tiny.directory)
    with unpacked(file) as directory:
        from_gguf = read_speechlm(directory, weights=file.path)
    for name in ("layout", "settings", "tower", "defaults"):
        assert getattr(from_gguf, name) == getattr(model, name), name
    assert from_gguf.codec and model.codec
    assert replace(from_gguf.codec, directory=None, where="") == replace(model.codec, directory=None, where="")
    text = "say three seven one, <|eos|>!"
    assert from_gguf.tokenizer.encode(text) == model.tokenizer.encode(text)
    assert (
        from_gguf.weights == (file.path,)
        and file.architecture == "speechlm"
        and file.text(LANGUAGE_ARCHITECTURE) == "qwen3"
    )


@pytest.mark.parametrize("form", ["directory", "release"])
def test_output_heads_equal_rows_of_the_output_matrix(
    form: str, forms: dict[str, tuple[TinySpeechLm, GgufFile]]
) -> None:
    tiny, file = forms[form]
    layout, matrix = tiny.layout, tiny.tensors["lm_head.weight"].numpy()
    np.testing.assert_array_equal(file.array("heads.text.weight"), matrix[layout.text_first : layout.codec_first])
    small = np.concatenate([matrix[: layout.text_first], matrix[layout.codec_first :]])
    np.testing.assert_array_equal(file.array("heads.codec.weight"), small)
    np.testing.assert_array_equal(file.array("stream_emb.weight"), tiny.tensors["stream_emb.weight"].numpy())
    np.testing.assert_array_equal(file.array("token_embd.weight"), tiny.tensors["model.embed_tokens.weight"].numpy())
    assert "output.weight" not in file.tensors


def test_tokenizer_from_vocab_and_merges_files_gives_the_same_ids(tmp_path: Path) -> None:
    tiny = tiny_espnet_release(tmp_path / "it")
    folder, text = tiny.directory / "Qwen3-tiny-Base", "say three seven one: it's 371, <|im_end|>  so!\n"
    expected = read_speechlm(tiny.directory).tokenizer.encode(text)
    content = json.loads((folder / "tokenizer.json").read_text())
    write_json(folder / "vocab.json", content["model"]["vocab"])
    merges = [each if isinstance(each, str) else " ".join(each) for each in content["model"]["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    (folder / "tokenizer.json").unlink()
    two = read_speechlm(tiny.directory).tokenizer
    with unpacked(read_gguf(speechlm_file(tiny.directory))) as directory:
        from_gguf = read_speechlm(directory, weights=tiny.directory).tokenizer
    assert expected == two.encode(text) == from_gguf.encode(text)
    assert from_gguf.decode(expected) == two.decode(expected)


def test_output_heads_of_tied_embeddings_equal_embedding_rows(tmp_path: Path) -> None:
    tiny = tiny_speechlm(tmp_path / "it", language={"tie_word_embeddings": True})
    for shard in tiny.directory.glob("model-*.safetensors"):
        tensors = load_file(shard)
        if tensors.pop("lm_head.weight", None) is not None:
            save_file(tensors, shard)
    file = read_gguf(speechlm_file(tiny.directory))
    table = tiny.tensors["model.embed_tokens.weight"].numpy()
    layout = tiny.layout
    np.testing.assert_array_equal(file.array("heads.text.weight"), table[layout.text_first : layout.text_end])


def test_file_size_is_estimated_exactly_and_codec_head_stays_float32(tmp_path: Path) -> None:
    tiny = tiny_speechlm(tmp_path / "it")
    sizes = estimated_bytes(plans(tiny.directory, "workbench"))
    path = speechlm_file(tiny.directory, "q8_0")
    file = read_gguf(path)
    assert path.stat().st_size == sizes["q8_0"] < sizes["f32"]
    types = {name: file.tensors[name].type for name in ("heads.codec.weight", "heads.text.weight", "stream_emb.weight")}
    assert types == {"heads.codec.weight": "F32", "heads.text.weight": "Q8_0", "stream_emb.weight": "F32"}


def without(directory: Path, name: str) -> None:
    for shard in directory.glob("model-*.safetensors"):
        tensors = load_file(shard)
        if tensors.pop(name, None) is not None:
            save_file(tensors, shard)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("stream_emb.weight", r"it lacks tensor stream_emb\.weight; expected \(5, 32\)"),
        ("lm_head.weight", r"it lacks tensor lm_head\.weight"),
        ("adaptor.continuous_audio.bias", r"it lacks tensor adaptor\.continuous_audio\.bias"),
    ],
)
def test_missing_tensor_raises_an_error_with_its_name(name: str, message: str, tmp_path: Path) -> None:
    tiny = tiny_speechlm(tmp_path / "it")
    without(tiny.directory, name)
    with pytest.raises(BadInput, match=message):
        plans(tiny.directory, "workbench")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act in the configuration of it is 'gelu'; only 'silu' is converted"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type in .* is 'dynamic'; default, linear"),
    ],
)
def test_configuration_unsupported_by_llama_cpp_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    tiny = tiny_speechlm(tmp_path / "it", language=changes)
    with pytest.raises(BadInput, match=message):
        plans(tiny.directory, "workbench")


@pytest.mark.parametrize(("key", "value"), [("rope_theta", "50000"), ("hidden_act", "none")])
def test_configuration_of_no_network_raises_one_line_error(key: str, value: Any, tmp_path: Path) -> None:
    tiny = tiny_speechlm(tmp_path / "it")
    config = json.loads((tiny.directory / "config.json").read_text())
    config["text_config"][key] = value
    write_json(tiny.directory / "config.json", config)
    for plan in (lambda: plans(tiny.directory, "workbench"), lambda: plan_of(tiny.directory, "speechlm")):
        with pytest.raises(BadInput, match=r"the configuration of it (describes no network: |is 'none'; only 'silu')"):
            plan()


def test_missing_codec_and_funasr_layout_are_refused(tmp_path: Path) -> None:
    tiny = tiny_speechlm(tmp_path / "it")
    with pytest.raises(BadInput, match="FunASR has no layout for it, a SpeechLM"):
        plans(tiny.directory, "funasr")
    write_codec(tiny.directory / "xcodec", weights=False)
    with pytest.raises(Unavailable, match="the codec is missing"):
        plans(tiny.directory, "workbench")
