"""Faults to plant into a copy of a demo model, to watch how a comparison finds them.

A fault is a change of one file of a checkpoint, or of how a side computes. The copy runs like any other checkpoint, so
every number on the screen comes from the broken model. The demo models themselves stay unchanged.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput, WorkbenchError
from workbench.core.sides import Side
from workbench.registry.registry import Registry
from workbench.registry.sources import assets

LANGUAGE_CONFIG = "Qwen3-demo/config.json"
MAX_SECONDS = 120.0  # until a copy's weights are changed
Plant = Callable[[Path], None]


@dataclass(frozen=True)
class Fault:
    """A fault that can be planted.

    Args:
        name: as scripts and links call it.
        title: what was done, in a few words.
        model: the demo model that it is planted in.
        first: the first stage that the fault changes.
        why: how such a fault arises in practice, and how it shows.
        side: the candidate, for a fault in how a side computes.
        plant: changes a copy of the checkpoint, for all other faults.
    """

    name: str
    title: str
    model: str
    first: str
    why: str
    side: str = ""
    plant: Plant | None = None

    @property
    def kind(self) -> str:
        """The name without the layer; in a game, the player guesses it."""
        return self.name.rstrip("0123456789-")


def _set_json(file: str, place: tuple[str, ...], value: Any, checkpoint: Path) -> None:
    """Sets one value in a JSON file of a checkpoint."""
    path = checkpoint / file
    config = json.loads(path.read_text(encoding="utf-8"))
    parent = config
    for name in place[:-1]:
        parent = parent[name]
    if place[-1] not in parent:
        raise BadInput(f"{file} has no {'.'.join(place)}; expected the configuration of a demo model")
    parent[place[-1]] = value
    path.write_text(json.dumps(config), encoding="utf-8")


def _silence(names: tuple[str, ...], checkpoint: Path) -> None:
    """Sets weights to zero in a separate process, because the caller's process does not import torch."""
    words = [sys.executable, "-P", "-m", "workbench.parity_lab.breaking", str(checkpoint / "model.pt"), *names]
    result = subprocess.run(words, capture_output=True, text=True, timeout=MAX_SECONDS, check=False)
    if result.returncode:
        raise WorkbenchError(f"the fault could not be planted: {result.stderr.strip().splitlines()[-1:]}")


def _silence_file(path: Path, names: list[str]) -> None:
    """Sets the tensors of those names in a checkpoint to zero."""
    import torch

    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    tensors = checkpoint.get("state_dict", checkpoint)
    for name in names:
        tensors[name] = torch.zeros_like(tensors[name])
    torch.save(checkpoint, path)


def _skipped(layer: int) -> Fault:
    # Without the outputs of attention and feed-forward network, only the residual stream is left.
    parts = [f"llm.model.layers.{layer}.{part}.weight" for part in ("self_attn.o_proj", "mlp.down_proj")]
    return Fault(
        f"layer-{layer}",
        f"Layer {layer} skipped",
        "demo/funasr-nano",
        f"llm.layers.{layer}",
        "A loop that begins at 1, or a layer whose weights were not loaded: the layer adds nothing to the residual "
        "stream. All before it agrees to the last digits; from it on, everything is wrong.",
        plant=partial(_silence, tuple(parts)),
    )


FAULTS: tuple[Fault, ...] = (
    Fault(
        "cmvn",
        "CMVN off",
        "demo/sensevoice",
        "frontend.features",
        "The front end does not normalise its features with the means and variances of am.mvn. The filter bank agrees, "
        "and the features that enter the encoder do not.",
        side="pytorch+cmvn=off",
    ),
    Fault(
        "epsilon",
        "Wrong epsilon",
        "demo/funasr-nano",
        "llm.layers.0",
        "RMSNorm divides by the root of the mean square plus an epsilon: 0.001 in place of the checkpoint's 0.000001. "
        "The error is small where activations are large, and grows from layer to layer.",
        plant=partial(_set_json, LANGUAGE_CONFIG, ("rms_norm_eps",), 1e-3),
    ),
    Fault(
        "rope",
        "RoPE base",
        "demo/funasr-nano",
        "llm.layers.0",
        "Rotary positions with base 10000, the default of many programs, in place of the checkpoint's 1000000. The "
        "first position is not turned and agrees; later positions are turned too far.",
        plant=partial(_set_json, LANGUAGE_CONFIG, ("rope_parameters", "rope_theta"), 1e4),
    ),
    *map(_skipped, (1, 2, 3)),
    Fault(
        "four-bit",
        "4-bit weights",
        "demo/funasr-nano",
        "",
        "The weights are rounded to 4 bits (q4_0). That is a loss and not a bug: each stage differs, by no more than "
        "this type's own rounding does.",
        side="gguf:q4_0",
    ),
)


def find_fault(name: str) -> Fault:
    """Returns the fault of that name; raises `BadInput` for an unknown one."""
    for fault in FAULTS:
        if fault.name == name:
            return fault
    raise BadInput(
        f"there is no fault {name!r:.40} to plant; expected one of {', '.join(each.name for each in FAULTS)}"
    )


def broken_copy(registry: Registry, fault: Fault, folder: Path) -> Path:
    """Copies the fault's demo model into the folder and plants the fault; returns the copy's directory.

    Raises `BadInput` for a fault in how a side computes, which needs no copy.
    """
    if fault.plant is None:
        raise BadInput(f"{fault.title} is not a change of a checkpoint; expected the side {fault.side}")
    original = assets() / registry.card(fault.model).source["demo"]
    copy = folder / f"{original.name}-{fault.name}"
    shutil.copytree(original, copy)
    fault.plant(copy)
    return copy


def planted_side(registry: Registry, fault: Fault, source: Any, folder: Path, name: str = "") -> str | Side:
    """Returns the candidate with the fault: a side that computes wrong, or the trace of a broken copy of the model.

    Args:
        folder: receives the copy and its trace.
        name: the candidate's name in the report; by default the fault's title.
    """
    if fault.plant is None:
        return fault.side
    copy = broken_copy(registry, fault, folder)
    path = folder / "planted.safetensors"
    with registry.open(copy, runtime="pytorch", dtype="float32") as session:
        session.trace(source, "*", out=path)
    shutil.rmtree(copy, ignore_errors=True)
    return Side(name or fault.title, path=path)


if __name__ == "__main__":
    _silence_file(Path(sys.argv[1]), sys.argv[2:])
