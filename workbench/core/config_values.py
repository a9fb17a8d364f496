"""Reads a value of a model's configuration file, and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.core.errors import BadInput


def whole_number(
    section: Mapping[str, Any],
    key: str,
    name: str,
    default: int | None = None,
    minimum: int = 1,
    maximum: int | None = None,
) -> int:
    """Returns a whole number of a section; raises `BadInput` if it is missing, not whole or out of range.

    Args:
        name: what the error calls it, such as "encoder_conf.num_blocks in config.yaml".
        default: where the section does not have the key; None if it must.
        maximum: None for no limit.
    """
    value = section.get(key, default)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < minimum or (maximum is not None and value > maximum):
        value_text = f"{value!r:.80}" if key in section else "missing"
        expected = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise BadInput(f"{name} is {value_text}; expected a whole number {expected}")
    return int(value)
