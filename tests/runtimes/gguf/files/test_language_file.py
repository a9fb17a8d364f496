"""Reading a language model's keys and tensors from a GGUF file, and the errors for wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.support.tiny_gguf import tiny_gguf, tiny_halves
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.causal_lm import open_session
from workbench.runtimes.gguf.files.language_file import (
    Dimensions,
    check_vocabulary,
    is_language_file,
    language_architecture,
    language_config,
    language_tensors,
    read_dimensions,
)
from workbench.runtimes.gguf.llama_cpp.language import open_language


@pytest.mark.parametrize("write", [tiny_gguf, tiny_halves])
def test_dimensions_and_configuration_equal_those_of_the_network(tmp_path: Path, write: Callable[..., Any]) -> None:
    network = write(tmp_path / "it.gguf", "qwen2", tie_word_embeddings=True)
    file = read_gguf(tmp_path / "it.gguf")
    assert is_language_file(file) and language_architecture(file) == "qwen2"
    assert read_dimensions(file) == Dimensions(32, 3, 64, 4, 2, 8, 512)
    config = language_config(file)
    assert (config.hidden_size, config.layers, config.vocabulary, config.context) == (32, 3, 512, 256)
    assert config.stop_ids == ((458,) if write is tiny_gguf else ()) and config.directory.name == "it.gguf"
    assert len(language_tensors(file, read_dimensions(file))) == len(network.state_dict()) - 1  # the output is tied


KINDS = {
    float: gguf.GGUFValueType.FLOAT32,
    int: gguf.GGUFValueType.UINT32,
    str: gguf.GGUFValueType.STRING,
    list: gguf.GGUFValueType.ARRAY,  # of texts
}


def changed_copy(path: Path, keys: dict[str, Any], tensors: dict[str, np.ndarray | None]) -> Path:
    """A copy of a file with these keys and tensors replaced; those that are None are missing in it."""
    reader = gguf.GGUFReader(path)
    path_of_copy = path.with_name("changed.gguf")
    architecture = str(reader.fields["general.architecture"].contents())
    writer = gguf.GGUFWriter(path_of_copy, keys.pop("general.architecture", architecture))
    writer.data_alignment = keys.get("general.alignment", writer.data_alignment)
    for name, field in reader.fields.items():
        if not name.startswith(("GGUF.", "general.architecture")) and name not in keys:
            inner = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    for key, value in keys.items():
        if value is not None:
            text = gguf.GGUFValueType.STRING if isinstance(value, list) else None
            writer.add_key_value(key, value, KINDS[type(value)], text)
    for tensor in reader.tensors:
        if tensor.name not in tensors:
            writer.add_tensor(tensor.name, np.array(tensor.data))
    for name, values in tensors.items():
        if values is not None:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path_of_copy


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"qwen3.embedding_length": None}, "has no metadata key qwen3.embedding_length"),
        ({"qwen3.embedding_length": 0}, "qwen3.embedding_length in changed.gguf is 0; expected a whole number from 1"),
        (
            {"qwen3.embedding_length": 64},
            "token_embd.weight in changed.gguf has the shape (512, 32); expected (512, 64)",
        ),
        ({"qwen3.block_count": 4_000_000_000}, "qwen3.block_count in changed.gguf is 4000000000; expected a whole"),
        ({"qwen3.block_count": 4}, "changed.gguf has no tensor blk.3.attn_norm.weight; expected one of shape (32,)"),
        ({"qwen3.attention.head_count": 0}, "qwen3.attention.head_count in changed.gguf is 0"),
        ({"qwen3.attention.head_count_kv": 3}, "head_count_kv in changed.gguf is 3; expected a divisor of 4"),
        ({"qwen3.attention.key_length": 16}, "value_length in changed.gguf is 8; expected 16, the width of a head"),
        ({"qwen3.rope.dimension_count": 4}, "rope.dimension_count in changed.gguf is 4; expected 8"),
        ({"qwen3.feed_forward_length": 63}, "blk.0.ffn_gate.weight in changed.gguf has the shape (64, 32)"),
        ({"qwen3.attention.layer_norm_rms_epsilon": float("nan")}, "layer_norm_rms_epsilon in changed.gguf is nan"),
        ({"qwen3.rope.freq_base": float("nan")}, "rope.freq_base in changed.gguf is nan"),
        ({"qwen3.rope.freq_base": 0.0}, "rope.freq_base in changed.gguf is 0"),
        (
            {"qwen3.rope.scaling.type": "longrope"},
            "scaling.type in changed.gguf is 'longrope'; expected none, linear, yarn",
        ),
        # llama.cpp ended the process with this type.
        ({"qwen3.rope.scaling.type": "dynamic"}, "rope.scaling.type in changed.gguf is 'dynamic'"),
        ({"qwen3.rope.scaling.alpha": 2.0}, "has the key qwen3.rope.scaling.alpha, which llama.cpp does not follow"),
        (
            {"qwen3.rope.scaling.factor": 0.0},
            "qwen3.rope.scaling.factor in changed.gguf is 0; expected a number above 0",
        ),
        ({"qwen3.rope.scaling.factor": float("nan")}, "qwen3.rope.scaling.factor in changed.gguf is nan"),
        (
            {"qwen3.rope.scaling.type": "yarn", "qwen3.rope.scaling.yarn_beta_fast": 8.0},
            "yarn_beta_fast in changed.gguf is 8; llama.cpp computes qwen3 with 32",
        ),
        ({"qwen3.context_length": 0}, "qwen3.context_length in changed.gguf is 0"),
        ({"tokenizer.ggml.eos_token_id": 512}, "tokenizer.ggml.eos_token_id in changed.gguf is 512"),
        # llama.cpp ended the process with the first of these.
        ({"qwen3.expert_count": 4}, "changed.gguf is a mixture of 4 experts (qwen3.expert_count), which are not"),
        ({"qwen3.expert_count": 4, "qwen3.expert_used_count": 2}, "changed.gguf is a mixture of 4 experts"),
        ({"general.architecture": "bert"}, "the architecture of changed.gguf is 'bert'; expected qwen2, qwen3, llama"),
    ],
    ids=str,
)
def test_wrong_metadata_key_raises_an_error_with_its_name(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    tiny_gguf(tmp_path / "it.gguf")
    file = read_gguf(changed_copy(tmp_path / "it.gguf", dict(keys), {}))
    with pytest.raises(BadInput) as error:
        language_tensors(file, read_dimensions(file)) and language_config(file)
    assert message in str(error.value)


@pytest.mark.parametrize("scaling", [{}, {"type": "linear", "factor": 2.0}, {"type": "yarn", "yarn_beta_fast": 32.0}])
def test_rope_scaling_supported_by_llama_cpp_is_accepted(tmp_path: Path, scaling: dict[str, Any]) -> None:
    tiny_gguf(tmp_path / "it.gguf")
    keys = {f"qwen3.rope.scaling.{key}": value for key, value in scaling.items()}
    assert read_dimensions(read_gguf(changed_copy(tmp_path / "it.gguf", keys, {}))).layers == 3


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"token_embd.weight": None}, "changed.gguf has no tensor token_embd.weight"),
        ({"blk.1.attn_q_norm.weight": None}, "changed.gguf has no tensor blk.1.attn_q_norm.weight"),
        ({"output.weight": np.zeros((500, 32), np.float32)}, "output.weight in changed.gguf has the shape (500, 32)"),
        ({"blk.2.attn_v.weight": np.zeros((8, 32), np.float32)}, "blk.2.attn_v.weight in changed.gguf has the shape"),
        ({"blk.0.attn_k.bias": np.zeros(3, np.float32)}, "blk.0.attn_k.bias in changed.gguf has the shape (3,)"),
        # llama.cpp ended the process with these.
        (
            {"token_embd.weight": np.zeros((512, 32), np.int8)},
            "token_embd.weight in changed.gguf is of type I8; expected",
        ),
        ({"blk.1.attn_k_norm.weight": np.zeros(8, np.float16)}, "attn_k_norm.weight in changed.gguf is of type F16"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_tensor_raises_an_error_with_its_name(
    tmp_path: Path, tensors: dict[str, np.ndarray | None], message: str
) -> None:
    tiny_gguf(tmp_path / "it.gguf")
    file = read_gguf(changed_copy(tmp_path / "it.gguf", {}, tensors))
    with pytest.raises(BadInput) as error:
        language_tensors(file, read_dimensions(file))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"<|im_start|>", b"<|im_end|>  ", ""),
        (b"<|object_ref_start|>", b"<|object_ref_staru|>", ""),
        (b"[PAD500]", b"[PAD501]", "tokenizer.ggml.tokens in changed.gguf has the token '[PAD501]' twice"),
        (b"ggml.tokens", b"ggml.tokenz", "changed.gguf has no tokenizer.ggml.tokens, the vocabulary"),
        (b"gpt2", b"gpt3", "tokenizer.ggml.model in changed.gguf is 'gpt3'; expected gpt2 or llama"),
        (b"tokenizer.ggml.model", b"tokenizer.ggml.modem", "changed.gguf has no metadata key tokenizer.ggml.model"),
    ],
    ids=ascii,
)
def test_vocabulary_check_accepts_valid_and_refuses_invalid_tokens(
    tmp_path: Path, old: bytes, new: bytes, message: str
) -> None:
    tiny_gguf(tmp_path / "it.gguf")
    content = (tmp_path / "it.gguf").read_bytes()
    (tmp_path / "changed.gguf").write_bytes(content.replace(old, new, 1))
    file = read_gguf(tmp_path / "changed.gguf")
    if not message:
        check_vocabulary(file)
        return
    with pytest.raises(BadInput) as error:
        check_vocabulary(file)
    assert message in str(error.value)


def test_sentencepiece_vocabulary_without_tokens_of_all_bytes_is_refused(tmp_path: Path) -> None:
    """llama.cpp ended the process over a text with such a byte."""
    tiny_gguf(tmp_path / "it.gguf")
    tokens = [f"<0x{number:02X}>" for number in range(256)] + [f"▁{number}" for number in range(256)]
    keys = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens}
    check_vocabulary(read_gguf(changed_copy(tmp_path / "it.gguf", dict(keys), {})))
    letters = ["a" if token == "<0x61>" else token for token in tokens]
    check_vocabulary(read_gguf(changed_copy(tmp_path / "it.gguf", {**keys, "tokenizer.ggml.tokens": letters}, {})))
    tokens[0xE4] = "ä"
    file = read_gguf(changed_copy(tmp_path / "it.gguf", dict(keys), {}))
    with pytest.raises(BadInput, match=r"^tokenizer\.ggml\.model in changed\.gguf is 'llama', and.*token <0xE4>; ex"):
        check_vocabulary(file)


def test_file_whose_tensors_are_not_aligned_for_ggml_gives_the_same_tokens(tmp_path: Path) -> None:
    """ggml ended the process over a mapped tensor that does not begin at a multiple of 32 bytes."""
    tiny_gguf(tmp_path / "it.gguf")
    keys: dict[str, Any] = {"general.alignment": 8}
    files = [tmp_path / "it.gguf", changed_copy(tmp_path / "it.gguf", keys, {"blk.0.attn_q.bias": np.zeros(32, "f4")})]
    assert any(info.offset % 32 for info in read_gguf(files[1]).tensors.values())
    tokens = [open_session(path, "it", Settings(threads=1)).generate("one", max_new_tokens=8).tokens for path in files]
    assert tokens[0] == tokens[1] and tokens[0]


def test_non_finite_weights_are_refused(tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "it.gguf")
    tensors = {"blk.1.attn_norm.weight": np.full(32, np.nan, np.float32)}
    file = read_gguf(changed_copy(tmp_path / "it.gguf", {}, tensors))
    with pytest.raises(BadInput, match=r"^tensor blk\.1\.attn_norm\.weight in changed\.gguf holds values that are not"):
        open_language(file, language_config(file))


def test_rope_frequency_factors_beside_another_network_are_refused(tmp_path: Path) -> None:
    tiny_halves(tmp_path / "it.gguf")
    tensors = {"rope_freqs.weight": np.ones(4, np.float32)}
    file = read_gguf(changed_copy(tmp_path / "it.gguf", {}, tensors))
    with pytest.raises(
        BadInput, match=r"^changed\.gguf has the tensor rope_freqs\.weight, which is not followed beside"
    ):
        read_dimensions(file)


def test_fewer_token_types_than_tokens_are_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "it.gguf", "qwen3")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "", ""])
    writer.add_token_types([1, 1, 1])
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(BadInput, match=r"^it\.gguf has 4 tokens and the types of 3; expected as many of each$"):
        check_vocabulary(read_gguf(tmp_path / "it.gguf"))


def test_file_without_a_language_model_is_recognised(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "it.gguf", "sensevoice-small")
    writer.add_tensor("encoder.weight", np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert not is_language_file(read_gguf(tmp_path / "it.gguf"))
