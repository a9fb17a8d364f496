"""The dimensions of a SAN-M encoder in a FunASR configuration (SenseVoice, Paraformer, Fun-ASR-Nano)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.core.config_values import whole_number
from workbench.core.errors import BadInput

# Far beyond any published model. A network of a billion layers would take hours to build before its weights are found
# missing.
MAX_UNITS = 100_000
MAX_BLOCKS = 1_000
MIN_INPUT = 4  # with two values, the rates of the positions would be 0 / 0


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
    second_norm: bool = False  # whether the norm of the second stage is there without its blocks too, as in SenseVoice

    @property
    def two_stages(self) -> bool:
        """Whether the second stage has a norm."""
        return self.second_norm or self.tp_blocks > 0

    @property
    def layers(self) -> int:
        """The number of blocks in both stages."""
        return self.num_blocks + self.tp_blocks


def config_number(
    section: Mapping[str, Any],
    key: str,
    where: str,
    default: int | None = None,
    minimum: int = 1,
    maximum: int = MAX_UNITS,
) -> int:
    """Returns a whole number of a section of config.yaml; raises `BadInput` if it is missing or cannot be used."""
    return whole_number(section, key, f"{where}.{key} in config.yaml", default, minimum, maximum)


def expect(section: Mapping[str, Any], key: str, value: Any, where: str) -> None:
    """Raises `BadInput` if a configuration asks for a variant of the network that is not implemented."""
    value_found = section.get(key, value)
    if value_found != value:
        raise BadInput(f"{where}.{key} in config.yaml is {value_found!r}; only {value!r} is supported")


def read_sanm_config(
    section: Mapping[str, Any],
    input_size: int,
    norm_eps: float,
    where: str = "encoder_conf",
    second_norm: bool = False,
) -> SanmConfig:
    """Reads the encoder's dimensions from `encoder_conf`; raises `BadInput` for missing, impossible or unsupported
    values.
    """
    if input_size % 2 or input_size < MIN_INPUT:
        raise BadInput(
            f"frontend_conf.n_mels and lfr_m in config.yaml give {input_size} values per frame; the positions of a "
            f"SAN-M encoder need an even number of at least {MIN_INPUT}"
        )
    expect(section, "input_layer", "pe", where)
    expect(section, "normalize_before", True, where)
    expect(section, "selfattention_layer_type", "sanm", where)
    config = SanmConfig(
        input_size=input_size,
        output_size=config_number(section, "output_size", where),
        attention_heads=config_number(section, "attention_heads", where),
        linear_units=config_number(section, "linear_units", where),
        num_blocks=config_number(section, "num_blocks", where, maximum=MAX_BLOCKS),
        tp_blocks=config_number(section, "tp_blocks", where, 0, 0, MAX_BLOCKS),
        kernel_size=config_number(section, "kernel_size", where, 11),
        sanm_shift=config_number(section, "sanm_shfit", where, 0, 0),
        norm_eps=norm_eps,
        second_norm=second_norm,
    )
    if config.output_size % config.attention_heads:
        raise BadInput(
            f"{where}.output_size {config.output_size} in config.yaml is not a multiple of attention_heads "
            f"{config.attention_heads}"
        )
    if config.sanm_shift > config.kernel_size // 2:
        raise BadInput(f"{where}.sanm_shfit {config.sanm_shift} is beyond half of kernel_size {config.kernel_size}")
    return config
