"""SeACo's bias encoder: turns each hotword into one vector by an LSTM of two layers, in numpy (see `lstm`).

Shi et al., "SeACo-Paraformer", ICASSP 2024. Axes: W words of equal length, N tokens of a word, D width. Tensor names
are the published ones.
"""

from __future__ import annotations

import numpy as np

from workbench.families.sanm.seaco import EMBEDDING, Hotwords, SeacoConfig
from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.networks.lstm import recur_rows

LAYERS = 2


class BiasEncoder:
    """The tensors of the encoder; raises `BadInput` if they are missing or misshapen."""

    def __init__(self, file: GgufFile, config: SeacoConfig, vocabulary: int):
        self._file = file
        self._directions = ("", "_reverse") if config.bidirectional else ("",)
        width, directions = config.width, len(self._directions)
        shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (vocabulary, width)}
        for layer in range(LAYERS):
            for direction in self._directions:
                end, inputs = f"_l{layer}{direction}", width if layer == 0 else directions * width
                shapes[f"bias_encoder.weight_ih{end}"] = (4 * width, inputs)
                shapes[f"bias_encoder.weight_hh{end}"] = (4 * width, width)
                shapes[f"bias_encoder.bias_ih{end}"] = shapes[f"bias_encoder.bias_hh{end}"] = (4 * width,)
        if config.bidirectional:
            shapes |= {"lstm_proj.weight": (width, 2 * width), "lstm_proj.bias": (width,)}
        for name, shape in shapes.items():
            file.expect(name, shape)

    def __call__(self, hotwords: Hotwords) -> np.ndarray:
        """Returns a vector of each hotword, [H, D]: the LSTM's output at its last token."""
        by_length: dict[int, list[int]] = {}
        for number, ids in enumerate(hotwords):
            by_length.setdefault(len(ids), []).append(number)
        last_states: dict[int, np.ndarray] = {}
        for length, numbers in by_length.items():
            tokens = [token for number in numbers for token in hotwords[number]]
            states = self._file.rows(EMBEDDING, tokens).reshape(len(numbers), length, -1)
            for layer in range(LAYERS):
                states = np.concatenate([self._run(states, layer, name) for name in self._directions], axis=2)
            last_states.update(zip(numbers, states[:, -1], strict=True))
        vectors = np.stack([last_states[number] for number in range(len(hotwords))])
        if len(self._directions) == 1:
            return vectors
        return vectors @ self._file.array("lstm_proj.weight").T + self._file.array("lstm_proj.bias")

    def _run(self, states: np.ndarray, layer: int, direction: str) -> np.ndarray:
        """Runs one layer in one direction over states [W, N, in]; returns [W, N, D]."""
        weights, recurrent, bias, recurrent_bias = (
            self._file.array(f"bias_encoder.{name}_l{layer}{direction}")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        order = slice(None, None, -1 if direction else 1)
        return recur_rows((states @ weights.T + (bias + recurrent_bias))[:, order], recurrent)[:, order]
