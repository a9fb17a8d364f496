"""The language model in a GGUF file: llama.cpp's keys and tensor names for Qwen2 and Qwen3, and its tokenizer format.

A file with these keys alone is an ordinary llama.cpp file. Llama and Mistral need another order of their attention's
rows and have other tokenizers: llama.cpp's own converter writes their files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import transformers
from torch import Tensor

from workbench.conversion.language_network import EMBEDDINGS, OUTPUT, expected_tensors, without_equal_output
from workbench.conversion.plan import PlannedTensor, Rows, Value
from workbench.core.errors import BadInput, message_of
from workbench.families.language.directory import TURN_END, LanguageConfig, LanguageTokenizer
from workbench.formats.quantization import Kind
from workbench.runtimes.pytorch.checkpoints.weights import check_tensors

ARCHITECTURES = {"qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3}
TABLES = ("token_embd.weight", "output.weight")
OUTPUT_BIAS = ".self_attn.o_proj.bias"
SCALINGS = ("default", "linear", "yarn")  # of positions, as transformers calls those that llama.cpp follows
# Parameters of YaRN and the values that llama.cpp computes with.
YARN: Mapping[str, Any] = {
    "beta_fast": 32,
    "beta_slow": 1,
    "attention_factor": None,
    "mscale": None,
    "mscale_all_dim": None,
    "truncate": True,
}
NORMAL_TOKEN, CONTROL_TOKEN, USER_DEFINED_TOKEN, UNUSED_TOKEN = 1, 3, 4, 5  # llama.cpp's token types

# How Qwen2's tokenizer, and llama.cpp's tokenizer of that name, split a text before they look for pieces.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, eq=False)
class LanguagePart:
    """The keys and tensors of a file's language model."""

    architecture: str  # qwen2 or qwen3
    values: dict[str, Value]
    tensors: list[PlannedTensor]
    notes: list[str]


def plan_language(
    language: LanguageConfig,
    tokenizer: LanguageTokenizer,
    tensors: Mapping[str, Tensor],
    rows: Callable[[str, Tensor], Rows],
    where: str,
) -> LanguagePart:
    """Plans the keys and tensors of a language model.

    Args:
        tensors: by transformers' names.
        rows: returns the rows of such a tensor.
        where: the name of their file in messages.

    Raises `BadInput` for a model that llama.cpp's network computes differently, and for missing, extra or misshapen
    tensors.
    """
    directory = language.directory.name
    if language.model_type not in ARCHITECTURES:
        raise BadInput(
            f"{directory} is a {language.model_type} model, and {' and '.join(ARCHITECTURES)} are converted here; "
            "convert it with llama.cpp's own convert_hf_to_gguf.py"
        )
    config = _network_config(language)
    values, planned = plan_network(language, config, tensors, rows, where, f"{directory}/config.json")
    definition = tokenizer.definition
    values |= _tokenizer_values(language, tokenizer, definition, config)
    return LanguagePart(language.model_type, values, planned, _notes(definition, directory))


def plan_network(
    language: LanguageConfig,
    config: Any,
    tensors: Mapping[str, Tensor],
    rows: Callable[[str, Tensor], Rows],
    where: str,
    described_in: str,
) -> tuple[dict[str, Value], list[PlannedTensor]]:
    """Plans the dimensions and tensors of a language model without its tokenizer; the model is a Qwen2 or Qwen3.

    Args:
        config: transformers' configuration of the network.
        tensors, rows, where: as in `plan_language`.
        described_in: the file that describes the network, in messages.

    Raises `BadInput` as `plan_language` does.
    """
    _check_network(config, described_in)
    names = gguf.get_tensor_name_map(ARCHITECTURES[language.model_type], language.layers)
    planned = []
    for name, tensor in _checked(config, tensors, rows, where, described_in).items():
        if name.endswith(OUTPUT_BIAS):
            _check_zero(rows(name, tensor), len(tensor), name, where)
            continue
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if stored is None:
            raise BadInput(f"{where} has tensor {name}, which llama.cpp's {language.model_type} does not have")
        kind = Kind.TABLE if stored in TABLES else Kind.MATRIX if tensor.ndim == 2 else Kind.EXACT
        planned.append(PlannedTensor(stored, tuple(tensor.shape), kind, rows(name, tensor)))
    return _dimensions(language, config), planned


def _check_zero(rows: Rows, count: int, name: str, where: str) -> None:
    """Raises `BadInput` unless the bias of an attention's output is zero: llama.cpp adds no bias there."""
    if np.any(rows(0, count)):
        raise BadInput(
            f"{where} has values other than 0 in {name}, which llama.cpp does not add; run the model on pytorch or vllm"
        )


def _network_config(language: LanguageConfig) -> Any:
    where = f"{language.directory.name}/config.json"
    try:
        config: Any = transformers.AutoConfig.from_pretrained(
            str(language.directory), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # its reader raises many kinds
        raise BadInput(f"{where} cannot be read: {message_of(error)}") from error
    return config


def _check_network(config: Any, where: str) -> None:
    """Raises `BadInput` for a network that llama.cpp computes differently."""
    _check_positions(config.rope_parameters or {}, where)
    for key, value, expected in (
        ("hidden_act", config.hidden_act, "silu"),
        ("use_sliding_window", bool(config.use_sliding_window), False),
        ("quantization_config", getattr(config, "quantization_config", None), None),
    ):
        if value != expected:
            raise BadInput(f"{key} in {where} is {value!r:.80}; only {expected!r} is converted")


def _check_positions(rope: Mapping[str, Any], where: str) -> None:
    """Raises `BadInput` for a scaling of positions that llama.cpp computes differently."""
    scaling = rope.get("rope_type", SCALINGS[0])
    if scaling not in SCALINGS:
        raise BadInput(f"rope_type in {where} is {scaling!r:.80}; {', '.join(SCALINGS)} are converted")
    if scaling == "yarn":
        for key, value in YARN.items():
            if rope.get(key, value) != value:
                raise BadInput(f"{key} of yarn in {where} is {rope[key]!r:.80}; only {value!r} is converted")
    factor = rope.get("factor", 1.0)
    if scaling != SCALINGS[0] and (isinstance(factor, bool) or not isinstance(factor, (int, float)) or factor < 1):
        raise BadInput(f"factor of the positions in {where} is {factor!r:.80}; expected a number of at least 1")


def _checked(
    config: Any, tensors: Mapping[str, Tensor], rows: Callable[[str, Tensor], Rows], where: str, described_in: str
) -> dict[str, Tensor]:
    """Returns the tensors of the file; like llama.cpp, it leaves out an output matrix that equals the embeddings."""
    network_class: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    expected = expected_tensors(network_class, config, described_in)
    available = dict(tensors)
    if config.tie_word_embeddings:

        def same_rows(output: Tensor, embeddings: Tensor, first: int, end: int) -> bool:
            return np.array_equal(rows(OUTPUT, output)(first, end), rows(EMBEDDINGS, embeddings)(first, end))

        available = without_equal_output(available, same_rows)
        if OUTPUT not in available:
            expected.pop(OUTPUT, None)
    check_tensors(expected, available, where, described_in=described_in)
    return {name: available[name] for name in expected}


def _dimensions(language: LanguageConfig, config: Any) -> dict[str, Value]:
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or language.hidden_size // heads
    values: dict[str, Value] = {
        "block_count": language.layers,
        "context_length": language.context,
        "embedding_length": language.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.freq_base": float((config.rope_parameters or {}).get("rope_theta", 10000.0)),
        "vocab_size": language.vocabulary,
        **_scaling(config.rope_parameters or {}, language.context),
    }
    return {f"{language.model_type}.{key}": value for key, value in values.items()}


def _scaling(rope: Mapping[str, Any], context: int) -> dict[str, Value]:
    """Returns the keys of scaled positions; none if they are not scaled."""
    scaling = rope.get("rope_type", SCALINGS[0])
    if scaling == SCALINGS[0]:
        return {}
    values: dict[str, Value] = {"rope.scaling.type": scaling, "rope.scaling.factor": float(rope["factor"])}
    if scaling == "yarn":
        original = rope.get("original_max_position_embeddings") or context
        values["rope.scaling.original_context_length"] = int(original)
    return values


def _tokenizer_values(
    language: LanguageConfig, tokenizer: LanguageTokenizer, definition: Mapping[str, Any], config: Any
) -> dict[str, Value]:
    """Returns the vocabulary with one entry per row of the embedding table, its merges and special tokens."""
    model = definition["model"]
    if model.get("type") != "BPE":
        raise BadInput(
            f"the tokenizer in {language.directory.name} is of type {model.get('type')}; expected BPE, as Qwen has it"
        )
    tokens = [f"[PAD{number}]" for number in range(language.vocabulary)]
    types = [UNUSED_TOKEN] * language.vocabulary
    for token, number in model["vocab"].items():
        tokens[number], types[number] = token, NORMAL_TOKEN
    for added_token in definition["added_tokens"]:
        number = added_token["id"]
        tokens[number], types[number] = (
            added_token["content"],
            CONTROL_TOKEN if added_token["special"] else USER_DEFINED_TOKEN,
        )
    merges = [
        each if isinstance(each, str) else " ".join(part.replace(" ", "Ġ") for part in each) for each in model["merges"]
    ]
    values: dict[str, Value] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
    }
    special_ids = dict(tokenizer.special_ids)
    end = tokenizer.id_of(TURN_END)
    roles = {
        "bos": special_ids.get("bos", config.bos_token_id),
        "eos": special_ids.get("eos", end if end is not None else next(iter(language.stop_ids), None)),
        "padding": special_ids.get("pad", language.pad_id),
    }
    adds_bos = tokenizer.encode("a", begin=True)[:1] == [roles["bos"]]  # as DeepSeek's models on Qwen's networks do
    values["tokenizer.ggml.add_bos_token"] = adds_bos
    for role, number in roles.items():
        if isinstance(number, int) and 0 <= number < language.vocabulary:
            values[f"tokenizer.ggml.{role}_token_id"] = number
    if tokenizer.chat_template:
        values["tokenizer.chat_template"] = tokenizer.chat_template
    return values


def _notes(definition: Mapping[str, Any], directory: str) -> list[str]:
    splitter = definition.get("pre_tokenizer") or {}
    parts = splitter.get("pretokenizers") or [splitter]
    if any((part.get("pattern") or {}).get("Regex") == QWEN2_SPLIT for part in parts):
        return []
    return [f"the tokenizer in {directory} splits text differently from Qwen2's tokenizer, which llama.cpp will use"]


def language_name(directory: Path) -> dict[str, Value]:
    """Returns the keys of a plain llama.cpp file that do not describe the network."""
    return {"general.name": directory.resolve().name, "general.file_type": 0}
