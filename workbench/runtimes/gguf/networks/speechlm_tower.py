"""The audio encoder of a SpeechLM on ggml: Whisper's log-mel features, Qwen3-Omni's audio tower, and the adaptor.

Axes: T frames, F bands, D width; one recording at a time. This file knows no language model but its width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.core.errors import BadInput
from workbench.families.speechlm.gguf import TowerSizes, read_tower_sizes
from workbench.families.speechlm.parts import Tower
from workbench.formats.gguf_file import GgufFile
from workbench.pipelines.conversation.speechlm_frontend import TowerFrontend
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.runtimes.gguf.networks.attention_stages import concatenate_all, self_attention, show_fused
from workbench.trace.recorder import Recorder

SIZE, STRIDE = 3, 2  # of the convolutions over frames and bands
EPS = 1e-5  # of all layer norms
TIMESCALE = 10000.0  # of the positions


class SpeechLmTower:
    """The loaded audio tower and adaptor.

    Args:
        tower: the checkpoint's description of it: mel features and windows.
        threads: None for one per processor that this process may use.

    Raises `BadInput` if the file's keys and tensors do not fit together, or do not fit the description.
    """

    def __init__(self, file: GgufFile, tower: Tower, threads: int | None = None):
        self.tower, self.frontend, self.sizes = tower, TowerFrontend(tower), read_tower_sizes(file)
        if self.sizes.bins != tower.mel.bins:
            raise BadInput(
                f"the audio tower of {file.name} takes {self.sizes.bins} mel bands, and its mel features have "
                f"{tower.mel.bins}; expected the same"
            )
        self._engine = GraphRunner(file, threads)
        try:
            self._engine.check(lambda g: self._build(g, np.zeros((1, self.sizes.bins), dtype=np.float32)))
        except BaseException:
            self._engine.close()
            raise

    def embed_audio(self, samples: np.ndarray, recorder: Recorder | None = None) -> np.ndarray:
        """Returns embeddings, float32 [n, hidden], of a recording, 16 kHz float32.

        A recorder gets the stages `tower.*` and `adaptor.output`. Raises `BadInput` for a recording that is too short,
        silent, or holds values that are not numbers.
        """
        self.frontend.check(samples)
        features = self.frontend.features(samples)
        if recorder is not None:
            features = np.asarray(recorder.put("tower.mel", features), dtype=np.float32)
        embeddings: np.ndarray = self._engine.run(lambda g: self._build(g, features), recorder)["embeddings"]
        return embeddings

    def _build(self, g: Graph, mel: np.ndarray) -> dict[str, Tensor]:
        scope, sizes, chunk = g.scope / "tower", self.sizes, self.tower.chunk
        parts = [subsample(g, *part, scope, sizes) for part in chunks_of(mel, chunk)]
        x = concatenate_all(g, parts)
        bounds = self.frontend.windows(len(mel)).bounds
        for number in range(sizes.layers):
            stage = f"tower.layers.{number}"
            x = g.tap(stage, encoder_layer(g, x, scope / "layers" / number, sizes, bounds, stage))
        x = g.layer_norm(x, scope / "norm", EPS)
        x = activated(g, g.linear(x, scope / "proj1", sizes.width), sizes)
        x = g.tap("tower.output", g.linear(x, scope / "proj2", sizes.output))
        return {"embeddings": g.tap("adaptor.output", g.linear(x, scope / "adaptor", sizes.hidden))}

    def close(self) -> None:
        """Frees the memory. May be called again."""
        self._engine.close()


def chunks_of(mel: np.ndarray, chunk: int) -> list[tuple[np.ndarray, int]]:
    """Returns the chunks of mel frames [T, F], each with the number of its frames that belong to the recording.

    As in transformers, a shorter last chunk after other chunks is padded with zeros, which the convolutions read.
    """
    parts = [mel[first : first + chunk] for first in range(0, len(mel), chunk)]
    longest = len(parts[0])
    return [(np.pad(part, ((0, longest - len(part)), (0, 0))), len(part)) for part in parts]


def subsample(g: Graph, mel: np.ndarray, valid: int, scope: Scope, sizes: TowerSizes) -> Tensor:
    """Returns the first `valid` mel frames of a chunk [T, F] as [ceil(valid / 8), D]: three convolutions, a linear
    layer, and positions, which begin anew with each chunk.
    """
    x = g.input(mel[:, :, None])
    for number in range(3):
        x = g.gelu(convolve_image(g, x, scope / "conv" / number, sizes.channels))
    frames, bands, channels = x.shape
    count = -(-valid // STRIDE**3)
    x = g.rows(g.reshape(x, (frames, bands * channels)), 0, count)
    x = g.linear(x, scope / "conv_out", sizes.width, bias=False)
    return g.add(x, g.input(positions(count, sizes.width)))


def convolve_image(g: Graph, x: Tensor, scope: Scope, out: int) -> Tensor:
    """Applies a convolution of size 3 and stride 2, zero padding 1: [T, F, D] to [ceil(T / 2), ceil(F / 2), out]."""
    kernel = scope.array("weight", (out, SIZE, SIZE, x.shape[2]))
    patches = g.patches(g.pad_image(x, 1), SIZE, STRIDE)
    rows, columns, summed_width = patches.shape
    y = g.matmul(g.reshape(kernel, (out, summed_width)), g.reshape(patches, (rows * columns, summed_width)))
    return g.reshape(g.add(y, scope.vector("bias", out)), (rows, columns, out))


def positions(frames: int, width: int) -> np.ndarray:
    """Returns sinusoids [frames, width] of positions from 0 on: sines in the first half, cosines in the second."""
    pair_count = width // 2
    rates = np.exp(-np.log(TIMESCALE) / max(pair_count - 1, 1) * np.arange(pair_count, dtype=np.float32)).astype(
        np.float32
    )
    angles = np.arange(frames, dtype=np.float32)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def encoder_layer(g: Graph, x: Tensor, scope: Scope, sizes: TowerSizes, bounds: Sequence[int], stage: str) -> Tensor:
    """Applies a pre-norm block, [T, D] to [T, D]: attention inside each window, then feed-forward.

    Taps the stages inside the layer; attention weights are 0 outside the windows.
    """
    prefix = f"{stage}.attention"
    normed = g.tap(f"{stage}.input_norm", g.layer_norm(x, scope / "attn_norm", EPS))
    fused = g.linear(normed, scope / "attn_qkv", 3 * sizes.width)
    projected = show_fused(g, fused, sizes.heads, prefix)
    context = self_attention(g, fused, projected, sizes.heads, prefix, bounds)
    x = g.add(x, g.tap(f"{prefix}.output", g.linear(context, scope / "attn_out", sizes.width)))
    x = g.tap(f"{prefix}.residual", x)
    normed = g.tap(f"{stage}.mlp_norm", g.layer_norm(x, scope / "ffn_norm", EPS))
    inner = activated(g, g.tap(f"{stage}.mlp.up", g.linear(normed, scope / "fc1", sizes.units)), sizes)
    inner = g.tap(f"{stage}.mlp.activation", inner)
    return g.add(x, g.tap(f"{stage}.mlp.down", g.linear(inner, scope / "fc2", sizes.width)))


def activated(g: Graph, x: Tensor, sizes: TowerSizes) -> Tensor:
    """Applies the tower's activation."""
    return {"gelu": g.gelu, "relu": g.relu, "silu": g.silu}[sizes.activation](x)
