"""Peers: the reference's own model in a candidate's half precision, whose rounding is the bound for the candidate.

This file only decides which peers a run needs; `workbench.compare.noise` judges by them.
"""

from __future__ import annotations

from collections.abc import Iterable

from workbench.compare.presets import half_of
from workbench.core.errors import BadInput
from workbench.core.sides import Side
from workbench.trace.mapping import StageMapping
from workbench.trace.read import read_trace


def peers_for(candidates: Iterable[Side], mapping: StageMapping | None) -> list[str]:
    """Returns the half precisions, `bfloat16` or `float16`, of candidates that need a peer, each once."""
    found = [half for side in candidates if (half := _half(side, mapping))]
    return list(dict.fromkeys(found))


def peer_side(reference: Side, half: str) -> Side:
    """Returns the peer of that precision: the whole model on PyTorch, with every step rounded."""
    kept = {name: value for name, value in reference.settings.items() if name in ("threads", "device")}
    settings = {**kept, "dtype": half, "stepwise": True}
    return Side(f"pytorch:{half}+stepwise=on", "pytorch", settings, dict(reference.options))


def _half(side: Side, mapping: StageMapping | None) -> str | None:
    if side.path is None:
        # On PyTorch with the same options, the candidate is the peer itself, or nearly so.
        mine = side.runtime == "pytorch" and not side.options
        return None if mine else half_of(side.settings)
    try:
        return half_of(read_trace(side.path, mapping).meta)
    except BadInput:
        return None  # the comparison reports it
