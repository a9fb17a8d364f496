"""The dimensions of a SAN-M encoder in a FunASR configuration (SenseVoice, Paraformer, Fun-ASR-Nano)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import BadInput

# Far beyond any published model. A network of a billion layers would take hours to build before its weights are found
# missing.
MOST_UNITS = 100_000
MOST_BLOCKS = 1_000


@dataclass(frozen=True)
class SanmConfig:
    """A SAN-M encoder (Gao et al., "SAN-M: Memory Equipped Self-Attention for End-to-End Speech Recognition", 2020)."""

    input_size: int
    output_size: int
    attention_heads: int
    linear_units: int
    num_blocks: int  # first stage, encoders0 included
    tp_blocks: int  # second stage with its own norm; 0 if the model has none
    kernel_size: int  # FSMN memory, in LFR frames
    sanm_shift: int
    norm_eps: float  # not in the file: the original classes differ

    @property
    def layers(self) -> int:
        """The number of blocks in both stages."""
        return self.num_blocks + self.tp_blocks


def positive_int(
    section: Mapping[str, Any],
    key: str,
    where: str,
    default: int | None = None,
    minimum: int = 1,
    maximum: int = MOST_UNITS,
) -> int:
    """Returns a whole number of a configuration section; raises `BadInput` if it is missing, not whole or out of
    range.
    """
    value = section.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        found = repr(value) if key in section else "missing"
        raise BadInput(f"{where}.{key} in config.yaml is {found}; expected a whole number from {minimum} to {maximum}")
    return value


def expect(section: Mapping[str, Any], key: str, value: Any, where: str) -> None:
    """Raises `BadInput` if a configuration asks for a variant of the network that is not implemented."""
    found = section.get(key, value)
    if found != value:
        raise BadInput(f"{where}.{key} in config.yaml is {found!r}; only {value!r} is supported")


def read_sanm_config(
    section: Mapping[str, Any], input_size: int, norm_eps: float, where: str = "encoder_conf"
) -> SanmConfig:
    """Reads the encoder's dimensions from `encoder_conf`; raises `BadInput` for missing, impossible or unsupported
    values.
    """
    expect(section, "input_layer", "pe", where)
    expect(section, "normalize_before", True, where)
    expect(section, "selfattention_layer_type", "sanm", where)
    config = SanmConfig(
        input_size=input_size,
        output_size=positive_int(section, "output_size", where),
        attention_heads=positive_int(section, "attention_heads", where),
        linear_units=positive_int(section, "linear_units", where),
        num_blocks=positive_int(section, "num_blocks", where, maximum=MOST_BLOCKS),
        tp_blocks=positive_int(section, "tp_blocks", where, 0, 0, MOST_BLOCKS),
        kernel_size=positive_int(section, "kernel_size", where, 11),
        sanm_shift=positive_int(section, "sanm_shfit", where, 0, 0),
        norm_eps=norm_eps,
    )
    if config.output_size % config.attention_heads:
        raise BadInput(
            f"{where}.output_size {config.output_size} in config.yaml is not a multiple of attention_heads "
            f"{config.attention_heads}"
        )
    if config.sanm_shift > (config.kernel_size - 1) // 2:
        raise BadInput(f"{where}.sanm_shfit {config.sanm_shift} is beyond half of kernel_size {config.kernel_size}")
    return config
