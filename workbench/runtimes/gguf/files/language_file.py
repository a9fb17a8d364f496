"""Reads the dimensions of the language model in a GGUF file, and checks its tensors against them.

A file may hold a language model alone, or beside other networks; then `workbench.language.architecture` names it. The
checks cover the faults for which llama.cpp would end the process. This file loads no weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass

from workbench.core.errors import BadInput
from workbench.families.gguf_files import LANGUAGE_ARCHITECTURE, contains_language_model
from workbench.families.language.directory import LanguageConfig
from workbench.formats.gguf_file import GgufFile
from workbench.formats.gguf_types import NOT_FOR_PRODUCTS

ARCHITECTURES = ("qwen2", "qwen3", "llama")  # networks with one structure; Mistral's files say llama
BYTE_LEVEL, SENTENCEPIECE = "gpt2", "llama"
TOKENIZERS = (BYTE_LEVEL, SENTENCEPIECE)
EMBEDDINGS, OUTPUT = "token_embd.weight", "output.weight"
ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
SCALINGS = ("none", "linear", "yarn")  # of the rotary embedding, as llama.cpp computes them from keys alone
SCALING_KEYS = frozenset({"type", "factor", "original_context_length", "finetuned", "attn_factor"})
"""The keys after `rope.scaling.` that llama.cpp follows for these architectures."""
YARN = {"yarn_ext_factor": 1.0, "yarn_attn_factor": 1.0, "yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0}
"""Further keys, and the values that llama.cpp computes these architectures with whatever a file says."""
MAX_LAYERS, MAX_HEADS, MAX_UNITS, MAX_POSITIONS = 512, 512, 1 << 17, 1 << 24


@dataclass(frozen=True)
class Dimensions:
    """The sizes of a language model's tensors."""

    hidden: int
    layers: int
    units: int  # width of the feed-forward network
    heads: int
    key_heads: int
    head_width: int
    vocabulary: int


def is_language_file(file: GgufFile) -> bool:
    """Returns whether the file holds a language model."""
    return LANGUAGE_ARCHITECTURE in file.metadata or file.architecture in ARCHITECTURES


def language_architecture(file: GgufFile) -> str:
    """Returns the architecture of the language model; raises `BadInput` if there is none, or an unsupported one."""
    architecture = file.text(LANGUAGE_ARCHITECTURE) if contains_language_model(file) else file.architecture
    if architecture not in ARCHITECTURES:
        raise BadInput(f"the architecture of {file.name} is {architecture!r}; expected {', '.join(ARCHITECTURES)}")
    return architecture


def read_dimensions(file: GgufFile) -> Dimensions:
    """Returns the dimensions; raises `BadInput` if they are missing, absurd or inconsistent."""
    kind = language_architecture(file)
    if experts := file.whole(f"{kind}.expert_count", default=0):
        raise BadInput(
            f"{file.name} is a mixture of {experts} experts ({kind}.expert_count), which are not supported; expected a "
            "model with one feed-forward network in each layer"
        )
    hidden = file.whole(f"{kind}.embedding_length", minimum=1, maximum=MAX_UNITS)
    heads = file.whole(f"{kind}.attention.head_count", minimum=1, maximum=MAX_HEADS)
    key_heads = file.whole(f"{kind}.attention.head_count_kv", default=heads, minimum=1, maximum=heads)
    if heads % key_heads:
        raise BadInput(f"{kind}.attention.head_count_kv in {file.name} is {key_heads}; expected a divisor of {heads}")
    width = file.whole(f"{kind}.attention.key_length", default=hidden // heads, minimum=2, maximum=MAX_UNITS)
    for key in ("attention.value_length", "rope.dimension_count"):
        size = file.whole(f"{kind}.{key}", default=width)
        if size != width:
            raise BadInput(f"{kind}.{key} in {file.name} is {size}; expected {width}, the width of a head")
    if width % 2:
        raise BadInput(f"the heads in {file.name} are {width} wide; expected an even number")
    file.number(f"{kind}.attention.layer_norm_rms_epsilon", minimum=0.0, maximum=1.0)
    file.number(f"{kind}.rope.freq_base", default=10000.0, minimum=1.0)
    _check_scaling(file, kind)
    if EMBEDDINGS not in file.tensors:
        raise BadInput(f"{file.name} has no tensor {EMBEDDINGS}")
    return Dimensions(
        hidden=hidden,
        layers=file.whole(f"{kind}.block_count", minimum=1, maximum=MAX_LAYERS),
        units=file.whole(f"{kind}.feed_forward_length", minimum=1, maximum=MAX_UNITS),
        heads=heads,
        key_heads=key_heads,
        head_width=width,
        vocabulary=file.tensors[EMBEDDINGS].shape[0],
    )


def _check_scaling(file: GgufFile, kind: str) -> None:
    """Raises `BadInput` for a scaling of positions that llama.cpp would compute differently, or would end the process
    for.
    """
    prefix = f"{kind}.rope.scaling."
    scaling = file.text(f"{prefix}type", default="linear")
    if scaling not in SCALINGS:
        raise BadInput(f"{prefix}type in {file.name} is {scaling!r:.80}; expected {', '.join(SCALINGS)}")
    for key in file.metadata:
        name = key.removeprefix(prefix)
        if name == key or name in SCALING_KEYS:
            continue
        if name not in YARN:
            raise BadInput(f"{file.name} has the key {key:.80}, which llama.cpp does not follow for {kind}")
        if file.number(key) != YARN[name]:
            raise BadInput(
                f"{key} in {file.name} is {file.number(key):g}; llama.cpp computes {kind} with {YARN[name]:g}"
            )
    for key in (f"{prefix}factor", f"{kind}.rope.scale_linear"):
        if key in file.metadata and file.number(key, minimum=0.0) == 0:
            raise BadInput(f"{key} in {file.name} is 0; expected a number above 0")
    factors = [name for name in ROPE_FACTORS if name in file.tensors]
    if factors and contains_language_model(file):
        raise BadInput(f"{file.name} has the tensor {factors[0]}, which is not followed beside other networks")


def check_dimensions(file: GgufFile, config: LanguageConfig) -> Dimensions:
    """Returns the dimensions; raises `BadInput` if they are not those of the configuration, or a tensor is missing or
    misshapen.
    """
    sizes = read_dimensions(file)
    for quantity, found, expected in (
        ("hidden size", sizes.hidden, config.hidden_size),
        ("number of layers", sizes.layers, config.layers),
        ("vocabulary", sizes.vocabulary, config.vocabulary),
    ):
        if found != expected:
            raise BadInput(
                f"the {quantity} of the language model in {file.name} is {found}; its configuration says {expected}"
            )
    language_tensors(file, sizes)
    return sizes


def language_tensors(file: GgufFile, sizes: Dimensions) -> list[str]:
    """Returns the names of the language model's tensors; raises `BadInput` if one is missing, misshapen or of a type
    that llama.cpp does not compute with: it would end the process.
    """
    names = []
    for name, shape, required in _layout(language_architecture(file), sizes):
        if not required and name not in file.tensors:
            continue
        kind = file.expect(name, shape).type
        if len(shape) == 1 and kind != "F32":
            raise BadInput(f"tensor {name} in {file.name} is of type {kind}; expected F32, as it is a vector")
        if kind in NOT_FOR_PRODUCTS:
            raise BadInput(f"tensor {name} in {file.name} is of type {kind}; expected F32, F16, BF16, Q8_0 ...")
        names.append(name)
    return names


def _layout(kind: str, sizes: Dimensions) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Yields (name, shape, whether it is required) of all tensors."""
    hidden, queries, keys = sizes.hidden, sizes.heads * sizes.head_width, sizes.key_heads * sizes.head_width
    yield EMBEDDINGS, (sizes.vocabulary, hidden), True
    yield "output_norm.weight", (hidden,), True
    yield OUTPUT, (sizes.vocabulary, hidden), False
    yield "output.bias", (sizes.vocabulary,), False
    for layer in range(sizes.layers):
        for part, shape, required in (
            ("attn_norm.weight", (hidden,), True),
            ("attn_q.weight", (queries, hidden), True),
            ("attn_k.weight", (keys, hidden), True),
            ("attn_v.weight", (keys, hidden), True),
            ("attn_q.bias", (queries,), False),
            ("attn_k.bias", (keys,), False),
            ("attn_v.bias", (keys,), False),
            ("attn_q_norm.weight", (sizes.head_width,), kind == "qwen3"),
            ("attn_k_norm.weight", (sizes.head_width,), kind == "qwen3"),
            ("attn_output.weight", (hidden, queries), True),
            ("ffn_norm.weight", (hidden,), True),
            ("ffn_gate.weight", (sizes.units, hidden), True),
            ("ffn_up.weight", (sizes.units, hidden), True),
            ("ffn_down.weight", (hidden, sizes.units), True),
        ):
            yield f"blk.{layer}.{part}", shape, required


def check_vocabulary(file: GgufFile) -> None:
    """Raises `BadInput` if llama.cpp cannot read the file's vocabulary."""
    kind = file.text("tokenizer.ggml.model")
    if kind not in TOKENIZERS:
        raise BadInput(f"tokenizer.ggml.model in {file.name} is {kind!r:.80}; expected {' or '.join(TOKENIZERS)}")
    tokens = file.texts("tokenizer.ggml.tokens")
    if tokens is None:
        raise BadInput(f"{file.name} has no tokenizer.ggml.tokens, the vocabulary")
    filled = [token for token in tokens if token]
    if len(set(filled)) < len(filled):
        duplicate = next(token for token, count in Counter(filled).items() if count > 1)
        raise BadInput(f"tokenizer.ggml.tokens in {file.name} has the token {duplicate!r:.80} twice")
    kinds = file.length("tokenizer.ggml.token_type")
    if kinds is not None and kinds != len(tokens):
        raise BadInput(f"{file.name} has {len(tokens)} tokens and the types of {kinds}; expected as many of each")
    if kind == SENTENCEPIECE:
        _check_bytes(file.name, set(filled))


def _check_bytes(name: str, tokens: Set[str]) -> None:
    """Raises `BadInput` if a byte has no token: llama.cpp ends the process over a text that needs it."""
    for byte in range(256):
        if f"<0x{byte:02X}>" not in tokens and not (byte < 128 and chr(byte) in tokens):
            raise BadInput(
                f"tokenizer.ggml.model in {name} is {SENTENCEPIECE!r}, and its vocabulary has no token <0x{byte:02X}>; "
                f"expected tokens of all 256 bytes, or {BYTE_LEVEL!r} for a byte-level vocabulary"
            )


def language_config(file: GgufFile) -> LanguageConfig:
    """Returns the model's configuration as families use it; its `directory` is the file. Raises `BadInput` like
    `read_dimensions`.
    """
    kind, sizes = language_architecture(file), read_dimensions(file)
    stops = [
        file.whole(key, maximum=sizes.vocabulary - 1)
        for key in (f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
        if key in file.metadata
    ]
    pad = "tokenizer.ggml.padding_token_id"
    return LanguageConfig(
        directory=file.path,
        model_type=kind,
        hidden_size=sizes.hidden,
        layers=sizes.layers,
        vocabulary=sizes.vocabulary,
        context=file.whole(f"{kind}.context_length", minimum=1, maximum=MAX_POSITIONS),
        stop_ids=tuple(dict.fromkeys(stops)),
        pad_id=file.whole(pad) if pad in file.metadata else None,
    )
