"""The files of a planter's dumps, and the part of them that a detector may read.

A planter writes traces of correct and of faulty ports of a model under neutral names, and a sealed file with their
faults. The detector reads the traces and their model and input. It opens the sealed file after it has written every
verdict.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from workbench.trace.trace import Trace

SEALED, SEEN, VERDICTS = "sealed.json", "seen.json", "verdicts.json"
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Planted:
    """One dump: of a correct port, or of one with a fault."""

    group: str
    dtype: str
    how: str  # how the port computes, or what its fault is
    stage: str = ""  # the first stage that the fault changes; empty for a correct port
    effect: float = 0.0  # relative L2 of that stage between the port with and without the fault
    spread: float = 0.0  # the largest relative L2 of that stage between correct ports of the same type and input


@dataclass
class Field:
    """The dumps of one planter.

    Args:
        folder: receives them.
        seed: of the order in which they are numbered.
    """

    folder: Path
    seed: int = 0
    _groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    _ports: list[tuple[Planted, Arrays]] = field(default_factory=list)
    _plain: dict[tuple[str, str], Arrays] = field(default_factory=dict)

    def group(self, name: str, model: str, source: str, stages: str) -> None:
        """Adds a model with an input; `stages` is the glob of what the ports dump."""
        self._groups[name] = {"model": model, "source": source, "stages": stages}

    def correct(self, group: str, dtype: str, how: str, arrays: Arrays) -> None:
        """Adds a correct port; the first of a group and type is the one that faults are planted in."""
        self._plain.setdefault((group, dtype), arrays)
        self._ports.append((Planted(group, dtype, how), arrays))

    def faulty(self, group: str, dtype: str, fault: str, stage: str, arrays: Arrays) -> None:
        """Adds a port with a fault, whose first changed stage is `stage`."""
        effect = apart(self._plain[group, dtype][stage], arrays[stage])
        self._ports.append((Planted(group, dtype, fault, stage, effect, self._spread(group, dtype, stage)), arrays))

    def _spread(self, group: str, dtype: str, stage: str) -> float:
        plain = self._plain[group, dtype][stage]
        others = [
            arrays for each, arrays in self._ports if not each.stage and (each.group, each.dtype) == (group, dtype)
        ]
        return max(apart(plain, arrays[stage]) for arrays in others)

    def seal(self, digests: Mapping[str, str]) -> None:
        """Writes everything. `digests` names the input of each group, as traces of the reference do."""
        self.folder.mkdir(parents=True, exist_ok=True)
        order = np.random.default_rng(self.seed).permutation(len(self._ports))
        groups: dict[str, Any] = {name: {**group, "files": []} for name, group in self._groups.items()}
        sealed = {}
        for number, place in enumerate(order):
            planted, arrays = self._ports[place]
            name = f"port-{number:04}.safetensors"
            meta = {"dtype": planted.dtype, "input_digest": digests[planted.group], "runtime": "a port"}
            Trace(arrays, meta).save(self.folder / name)
            groups[planted.group]["files"].append(name)
            sealed[name] = asdict(planted)
        (self.folder / SEEN).write_text(json.dumps(groups, indent=1), encoding="utf-8")
        (self.folder / SEALED).write_text(json.dumps(sealed, indent=1), encoding="utf-8")


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Returns the relative L2 of the difference; infinite for other shapes."""
    if one.shape != other.shape:
        return float("inf")
    size = float(np.linalg.norm(one.astype(np.float64)))
    return float(np.linalg.norm(other.astype(np.float64) - one)) / size if size else float("inf")
