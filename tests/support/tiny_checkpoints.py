"""Writes checkpoint directories that load in a moment: the real formats and networks, tiny, with seeded random weights.

What such a model hears is nonsense, but the same nonsense every time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from workbench.families.sanm.paraformer import read_paraformer
from workbench.families.sanm.sensevoice import EMOTIONS, LANGUAGES, TEXTNORMS, read_sensevoice
from workbench.runtimes.pytorch.paraformer import ParaformerNetwork
from workbench.runtimes.pytorch.sensevoice import SenseVoiceNetwork

WIDTH = 16
FRONTEND = {
    "fs": 16000,
    "window": "hamming",
    "n_mels": 80,
    "frame_length": 25,
    "frame_shift": 10,
    "lfr_m": 7,
    "lfr_n": 6,
}
ENCODER: dict[str, Any] = {
    "output_size": WIDTH,
    "attention_heads": 2,
    "linear_units": WIDTH,
    "num_blocks": 2,
    "input_layer": "pe",
    "normalize_before": True,
    "kernel_size": 5,
    "sanm_shfit": 0,
    "selfattention_layer_type": "sanm",
}
LETTERS = [f"▁{letter}" for letter in "abcdefgh"]
TAGS = [f"<|{name}|>" for name in (*LANGUAGES, *EMOTIONS, *TEXTNORMS, "Speech", "BGM")]


def tiny_sensevoice(directory: Path, seed: int = 1) -> Path:
    """A SenseVoice checkpoint of some thousand parameters; returns the directory."""
    config = {
        "model": "SenseVoiceSmall",
        "encoder": "SenseVoiceEncoderSmall",
        "encoder_conf": {**ENCODER, "tp_blocks": 1},
        "frontend_conf": FRONTEND,
    }
    _write_texts(directory, config, ["<unk>", "<s>", "</s>", *LETTERS, *TAGS])
    model = read_sensevoice(directory)
    _write_weights(directory, SenseVoiceNetwork(model.encoder, len(model.vocabulary)), seed)
    return directory


def tiny_paraformer(directory: Path, seed: int = 1) -> Path:
    """A Paraformer checkpoint of some thousand parameters; returns the directory."""
    config = {
        "model": "Paraformer",
        "encoder": "SANMEncoder",
        "encoder_conf": ENCODER,
        "decoder": "ParaformerSANMDecoder",
        "decoder_conf": {
            "attention_heads": 2,
            "linear_units": WIDTH,
            "num_blocks": 1,
            "att_layer_num": 1,
            "kernel_size": 5,
        },
        "predictor": "CifPredictorV2",
        "predictor_conf": {"idim": WIDTH, "threshold": 1.0, "l_order": 1, "r_order": 1, "tail_threshold": 0.45},
        "frontend_conf": FRONTEND,
    }
    pieces = ["<blank>", "<s>", "</s>", "one", "two", "three", "four", "<unk>"]
    _write_texts(directory, config, pieces)
    model = read_paraformer(directory)
    network = ParaformerNetwork(model.encoder, model.predictor, model.decoder, len(pieces))
    _write_weights(
        directory, network, seed, {"decoder.output_layer.bias": [n for n, p in enumerate(pieces) if p[0] == "<"]}
    )
    return directory


def _write_texts(directory: Path, config: dict[str, Any], pieces: list[str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (directory / "tokens.json").write_text(json.dumps(pieces), encoding="utf-8")
    (directory / "model.pt").touch()  # for the reader of the configuration, which asks whether it is there


def _write_weights(
    directory: Path, network: torch.nn.Module, seed: int, unlikely: Mapping[str, Sequence[int]] | None = None
) -> None:
    tensors = drawn_tensors(network, seed)
    for name, entries in (unlikely or {}).items():
        tensors[name][list(entries)] -= 100
    torch.save(tensors, directory / "model.pt")


def drawn_tensors(network: torch.nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """Weights that keep the sizes of what passes through them, so that the output depends on the input."""
    draw = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, value in network.state_dict().items():
        drawn = torch.randn(value.shape, generator=draw)
        if value.ndim > 1:
            tensors[name] = 2 * drawn / value[0].numel() ** 0.5
        else:
            tensors[name] = 0.1 * drawn + (1.0 if name.endswith("weight") else 0.0)
    return tensors


def add_weight_bytes(directory: Path, count: int) -> None:
    """Makes the checkpoint look that much larger to whoever estimates its memory, and costs no disk."""
    with (directory / "unused.pt").open("wb") as file:
        file.truncate(count)


def claiming_checkpoints(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Four checkpoints that claim 1 GB of weights each, named by folders of the current one, which becomes `folder`."""
    names = ["one", "two", "three", "never"]
    for name in names:
        add_weight_bytes(tiny_sensevoice(folder / name), 1 << 30)
    monkeypatch.chdir(folder)
    return names


def change_config(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes `config.yaml`: `change` gets its content."""
    path = directory / "config.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    change(config)
    path.write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")


def noise(seconds: float, rate: int = 16000, seed: int = 1) -> tuple[np.ndarray, int]:
    """A recording in memory: noise that swells and fades three times a second, so there are quiet places to cut at."""
    time = np.arange(round(seconds * rate)) / rate
    draw = np.random.default_rng(seed)
    swell = 0.1 * np.sin(3 * np.pi * time) ** 2
    return (swell * draw.standard_normal(len(time))).astype(np.float32), rate


LONG: dict[str, Any] = {"vad": "none", "max_segment_seconds": 1.0}
"""Options with which `long_noise` gives many more events than fit between two processes: the call cannot end unread."""


def long_noise() -> tuple[np.ndarray, int]:
    """Fifteen minutes at a low rate, which is little to send and hundreds of segments."""
    return noise(900, rate=1000)
