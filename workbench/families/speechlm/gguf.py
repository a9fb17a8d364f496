"""The dimensions of a SpeechLM's audio parts, which its GGUF file states under `tower.*` and `codec.*`.

The conversion writes the keys and the runtime reads them, so that no default of another library is needed to run a
file. Tensors are not named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from workbench.core.errors import BadInput
from workbench.formats.gguf_file import GgufFile

TOWER, CODEC, SEMANTIC = "tower.", "codec.", "codec.semantic."
ACTIVATIONS = ("gelu", "relu", "silu")  # of the tower; gelu is the exact one, with the error function
MAXIMUM = 100_000  # far beyond any published size
MAX_LAYERS = 1000  # a network of more would take hours to build before its weights are found missing
MAX_STEPS = 32  # entries of a list, each a layer that changes the rate or the width

Value = int | float | bool | str | tuple[int, ...]
Sizes = TypeVar("Sizes")


@dataclass(frozen=True)
class TowerSizes:
    """The audio tower (Qwen3-Omni's audio encoder) and the adaptor to the language model."""

    bins: int  # mel bands
    channels: int  # of the three convolutions
    width: int
    layers: int
    heads: int
    units: int  # of the feed-forward layers
    output: int  # width after the two projections
    hidden: int  # width of the language model
    activation: str


@dataclass(frozen=True)
class CodecSizes:
    """Xcodec without its semantic model: codebooks, the two projections, acoustic encoder and decoder."""

    sample_rate: int  # Hz
    codes: int  # of each codebook
    codebooks: int  # that the file has: one for each stream of the language model
    acoustic_width: int  # of the acoustic encoder's output and of the decoder's input
    decoder_width: int  # channels after the decoder's first convolution; each upsampling halves them
    upsampling: tuple[int, ...]
    encoder_width: int  # channels after the encoder's first convolution; each downsampling doubles them
    downsampling: tuple[int, ...]
    semantic_width: int  # of the semantic branch; with `acoustic_width` that of a codebook's rows
    encodes: bool  # whether the file has the encoder


@dataclass(frozen=True)
class SemanticSizes:
    """HuBERT, whose hidden states are averaged, and the convolutions of the semantic branch behind it."""

    widths: tuple[int, ...]  # of the convolutions over samples
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    biased: bool  # whether these convolutions have a bias
    norm: str  # group: after the first one, over time; layer: after each, over channels
    projection_norm: bool
    layers: int
    heads: int
    units: int
    epsilon: float  # of its layer norms
    stable: bool  # whether a layer normalises its input instead of its output
    position_kernel: int
    position_groups: int
    kernel: int  # of the first convolution of the branch
    unit_kernel: int  # of its residual units
    dilations: tuple[int, ...]
    branch_widths: tuple[int, ...]  # after each of its blocks
    branch_strides: tuple[int, ...]


def stated(sizes: Any, prefix: str) -> dict[str, Any]:
    """Returns the keys and values of a dataclass of sizes."""
    return {
        f"{prefix}{field.name}": list(value) if isinstance(value := getattr(sizes, field.name), tuple) else value
        for field in fields(sizes)
    }


def read_tower_sizes(file: GgufFile) -> TowerSizes:
    """Returns the sizes of the tower; raises `BadInput` if they are missing, out of range or do not fit together."""
    sizes = _read(file, TowerSizes, TOWER)
    _expect(sizes.width % (2 * sizes.heads) == 0, file, f"{TOWER}width", sizes.width, "a multiple of twice the heads")
    _expect(sizes.activation in ACTIVATIONS, file, f"{TOWER}activation", sizes.activation, " or ".join(ACTIVATIONS))
    return sizes


def read_codec_sizes(file: GgufFile) -> CodecSizes:
    """Returns the sizes of the codec; raises `BadInput` as `read_tower_sizes` does."""
    sizes = _read(file, CodecSizes, CODEC)
    rates: Mapping[str, tuple[int, int]] = {
        "upsampling": (sizes.decoder_width, len(sizes.upsampling)),
        "downsampling": (sizes.decoder_width, 0),
    }
    for name, (width, halvings) in rates.items():
        steps = getattr(sizes, name)
        _expect(bool(steps) and all(each >= 1 for each in steps), file, CODEC + name, steps, "steps of at least 1")
        _expect(width >> halvings >= 1, file, CODEC + "decoder_width", width, f"channels for {halvings} halvings")
    up, down = _product(sizes.upsampling), _product(sizes.downsampling)
    _expect(up == down <= MAXIMUM, file, f"{CODEC}upsampling", sizes.upsampling, f"frames of {down} samples")
    return sizes


def read_semantic_sizes(file: GgufFile) -> SemanticSizes:
    """Returns the sizes of the semantic branch; raises `BadInput` as `read_tower_sizes` does."""
    sizes = _read(file, SemanticSizes, SEMANTIC)
    first, second = (sizes.widths, sizes.kernels, sizes.strides), (sizes.branch_widths, sizes.branch_strides)
    for name, group in (("widths", first), ("branch_widths", second)):
        fits = len({len(each) for each in group}) == 1 and bool(group[0]) and all(min(each) >= 1 for each in group)
        _expect(fits, file, SEMANTIC + name, group[0], "as many numbers as kernels and strides, at least 1")
    _expect(all(each >= 1 for each in sizes.dilations), file, SEMANTIC + "dilations", sizes.dilations, "at least 1")
    _expect(sizes.norm in ("group", "layer"), file, SEMANTIC + "norm", sizes.norm, "group or layer")
    return sizes


def _read(file: GgufFile, kind: type[Sizes], prefix: str) -> Sizes:
    values = {field.name: _value(file, f"{prefix}{field.name}", str(field.type)) for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**values)


def _value(file: GgufFile, key: str, kind: str) -> Value:
    if kind == "int":
        return file.whole(key, minimum=1, maximum=MAX_LAYERS if key.endswith(".layers") else MAXIMUM)
    if kind == "bool":
        return file.flag(key)
    if kind == "str":
        return file.text(key)
    if kind == "float":
        return file.number(key, minimum=0.0, maximum=1.0)
    length = file.length(key)
    if length is None or length > MAX_STEPS:
        raise BadInput(f"{key} in {file.name} is not a list of at most {MAX_STEPS} numbers")
    numbers = file.numbers(key)
    if numbers is None or numbers.dtype.kind not in "iu" or not all(0 <= each <= MAXIMUM for each in numbers.tolist()):
        raise BadInput(f"{key} in {file.name} is not a list of whole numbers from 0 to {MAXIMUM}")
    return tuple(map(int, numbers))


def _expect(fits: bool, file: GgufFile, key: str, value: Any, expected: str) -> None:
    if not fits:
        raise BadInput(f"{key} in {file.name} is {value!r:.80}; expected {expected}")


def _product(numbers: tuple[int, ...]) -> int:
    product = 1
    for each in numbers:
        product *= each
    return product
