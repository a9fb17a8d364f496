"""Opens every family on PyTorch, demo and tiny, and finds the layers of its networks, to compute their stages again."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from tests.support.tiny_checkpoints import noise, tiny_paraformer, tiny_sensevoice
from tests.support.tiny_fireredasr import tiny_fireredasr
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from tests.support.tiny_language import tiny_language
from tests.support.tiny_speechlm import tiny_speechlm
from workbench.core.settings import Settings
from workbench.registry.sources import assets
from workbench.runtimes.pytorch.inner_stages.layer_maps import LANGUAGE, TOWER, LayerMap, stacks_of

WRITERS: dict[str, Callable[[Path], Any]] = {
    "sensevoice": tiny_sensevoice,
    "paraformer": tiny_paraformer,
    "funasr_nano": tiny_funasr_nano,
    "fireredasr": tiny_fireredasr,
    "speechlm": tiny_speechlm,
    "causal_lm": tiny_language,
    "qwen2": lambda folder: tiny_language(folder, "qwen2"),
    "mistral": lambda folder: tiny_language(folder, "mistral", sliding_window=4),
}
DEMOS = ("sensevoice", "paraformer", "funasr_nano", "fireredasr", "speechlm")
MODELS = (*(f"tiny {name}" for name in WRITERS), *(f"demo {name}" for name in DEMOS))
SAMPLE = assets() / "samples" / "three_seven_one.wav"
EVERYTHING = "*,*.layers.*.*"


def opened(model: str, folder: Path, **settings: Any) -> Any:
    """A session of one of `MODELS`; a tiny checkpoint is written to a new folder inside `folder`."""
    size, name = model.split()
    if size == "demo":
        directory = assets() / f"demo-{name.replace('_', '-')}"
    else:
        directory = folder / name
        if not directory.exists():
            WRITERS[name](directory)
    family = name if name in DEMOS else "causal_lm"
    module = import_module(f"workbench.runtimes.pytorch.{family}")
    return module.open_session(directory, model, Settings(threads=1, **settings))


def traced(session: Any, stages: str = EVERYTHING, **options: Any) -> Any:
    """The stages of a short input."""
    size, name = session.model.split()
    if name == "speechlm":
        content = [{"type": "audio", "audio": str(SAMPLE)}, {"type": "text", "text": "repeat"}]
        return session.trace([{"role": "user", "content": content}], stages, modalities="text", **options)
    if name not in DEMOS:
        return session.trace("What is it?", stages, max_new_tokens=3, **options)
    short = {"max_new_tokens": 3} if name in ("funasr_nano", "fireredasr") else {}
    return session.trace(noise(2) if size == "tiny" else SAMPLE, stages, **short, **options)


def layers_of(session: Any) -> dict[str, tuple[nn.Module, LayerMap]]:
    """The layers of a session's networks by stage, such as `encoder.layers.0`, with the map of each."""
    name = session.model.split()[1]
    if name in ("sensevoice", "paraformer"):
        stacks = list(stacks_of(session.recogniser.network.network))
    elif name in ("funasr_nano", "fireredasr"):
        stacks = list(stacks_of(session.recogniser.encoder.network.network))
        stacks.append(("llm.layers", session.recogniser.language.network.model.layers, LANGUAGE))
    elif name == "speechlm":
        stacks = [
            ("tower.layers", session.network.audio_encoder._encoder.layers, TOWER),
            ("llm.layers", session.network.language.network.model.layers, LANGUAGE),
        ]
    else:
        stacks = [("llm.layers", session.writer.language.network.model.layers, LANGUAGE)]
    return {
        f"{stack}.{number}": (layer, places) for stack, layers, places in stacks for number, layer in enumerate(layers)
    }


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest magnitude where that is above 1."""
    assert actual.shape == expected.shape
    return float(np.abs(actual - expected).max() / max(1.0, np.abs(expected).max()))
