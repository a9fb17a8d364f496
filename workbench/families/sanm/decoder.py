"""The configuration of a SAN-M decoder: Paraformer's, and that of SeACo's hotwords. This file computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import BadInput
from workbench.families.sanm.encoder import MAX_BLOCKS, config_number, expect

# Keys of SAN-M stacks that would change their layers, with the values that do not.
UNCHANGED_LAYERS: Mapping[str, Any] = {"concat_after": False, "lora_list": None}


@dataclass(frozen=True)
class DecoderConfig:
    """Its dimensions."""

    attention_heads: int
    linear_units: int
    num_blocks: int
    att_layer_num: int
    kernel_size: int
    sanm_shift: int


def read_decoder(section: Mapping[str, Any], size: int, where: str, output_layer: bool) -> DecoderConfig:
    """Reads a section of config.yaml with the name `where`.

    Args:
        size: the decoder's width.
        output_layer: whether the decoder ends in logits.

    Raises `BadInput` for values that are unsupported or cannot be used.
    """
    for key, value in {**UNCHANGED_LAYERS, "normalize_before": True}.items():
        expect(section, key, value, where)
    has_output_layer = section.get("use_output_layer", True)  # the original's default
    if has_output_layer is not output_layer:
        raise BadInput(
            f"{where}.use_output_layer in config.yaml is {has_output_layer!r}; only {output_layer} is supported"
        )
    kernel = config_number(section, "kernel_size", where, 21)
    unset = section.get("sanm_shfit", 0) is None
    config = DecoderConfig(
        attention_heads=config_number(section, "attention_heads", where, 4),
        linear_units=config_number(section, "linear_units", where, 2048),
        num_blocks=config_number(section, "num_blocks", where, 6, maximum=MAX_BLOCKS),
        att_layer_num=config_number(section, "att_layer_num", where, 6, maximum=MAX_BLOCKS),
        kernel_size=kernel,
        sanm_shift=(kernel - 1) // 2 if unset else config_number(section, "sanm_shfit", where, 0, 0, kernel // 2),
    )
    if size % config.attention_heads:
        raise BadInput(f"{where}.attention_heads {config.attention_heads} does not divide the encoder's width {size}")
    return config
