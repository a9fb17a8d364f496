"""Xcodec's encoder: samples to codes, by an acoustic and a semantic branch, with the tensor names of `speechlm_audio`.

Xcodec (Ye et al., "Codec Does Matter", AAAI 2025) joins the Descript audio codec's encoder with the mean of all hidden
states of HuBERT (Hsu et al., 2021). The residual vector quantisation is computed by numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from workbench.core.errors import BadInput
from workbench.families.speechlm.gguf import CodecSizes, SemanticSizes, read_semantic_sizes
from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.graphs.convolutions import convolve, snake, snake_convolve
from workbench.runtimes.gguf.graphs.graph import Graph
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.graphs.weights import Scope, Tensor
from workbench.runtimes.gguf.networks.hubert import hidden_mean
from workbench.runtimes.gguf.networks.xcodec_decoder import TAPS, residual_units
from workbench.speech.codec_input import check_branches

CHECKED = 100  # frames of the graph that checks the tensors; it is not computed
LAST_TAPS = 3  # of the acoustic encoder's last convolution


class Encoder:
    """The loaded encoder of a codec.

    Args:
        codebooks: arrays [codes, width], one for each stream.

    Raises `BadInput` if the file's keys and tensors do not fit together.
    """

    def __init__(self, file: GgufFile, engine: GraphRunner, sizes: CodecSizes, codebooks: Sequence[np.ndarray]):
        self.sizes, self.semantic = sizes, read_semantic_sizes(file)
        self._engine, self._codebooks = engine, codebooks
        self._hop = math.prod(sizes.downsampling)
        width, semantic = sizes.semantic_width, self.semantic
        if width % semantic.heads or width % semantic.position_groups or semantic.branch_widths[-1] != width:
            raise BadInput(
                f"the semantic branch in {file.name} is {width} wide, and its heads, groups or last block do not fit"
            )
        engine.check(self._check)

    def _check(self, g: Graph) -> dict[str, Tensor]:
        """Reads every tensor, also of a codec whose branches give different numbers of rows: such a codec decodes."""
        branches = self._branches(g, np.zeros(CHECKED * self._hop, dtype=np.float32))
        rows = min(each.shape[0] for each in branches)
        return self._joined(g, *(g.rows(each, 0, rows) for each in branches))

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """Returns codes [rows, streams] of float32 samples of whole frames; about one row for each frame."""
        embeddings = self._engine.run(lambda g: self._build(g, samples))["embeddings"]
        return quantise(embeddings, self._codebooks)

    def _build(self, g: Graph, samples: np.ndarray) -> dict[str, Tensor]:
        """Computes the embeddings [rows, width] of the samples, ready for the codebooks.

        Raises `BadInput` if the branches give different numbers of rows.
        """
        sound, semantic = self._branches(g, samples)
        check_branches(sound.shape[0], semantic.shape[0])
        return self._joined(g, sound, semantic)

    def _branches(self, g: Graph, samples: np.ndarray) -> tuple[Tensor, Tensor]:
        """Computes what the acoustic and the semantic branch give: [rows, width] each."""
        scope, sizes, pad = g.scope / "codec", self.sizes, self._hop // 2
        padded = np.pad(samples, pad)
        hidden = hidden_mean(g, g.input(padded[:, None]), scope / "semantic", self.semantic, sizes.semantic_width)
        semantic = branch(g, hidden, scope / "branch", self.semantic, sizes.semantic_width)
        # As in Xcodec, the samples are padded if the branches would otherwise have different lengths.
        lengths_match = acoustic_rows(len(samples), sizes) == semantic.shape[0]
        x = g.input((samples if lengths_match else padded)[:, None])
        return encode(g, x, scope / "encoder", sizes), semantic

    def _joined(self, g: Graph, sound: Tensor, semantic: Tensor) -> dict[str, Tensor]:
        """Joins the branches to the embeddings."""
        layer, width = g.scope / "codec" / "fc", self.sizes.acoustic_width + self.sizes.semantic_width
        joined = g.concatenate_channels(sound, semantic)
        product = g.matmul(layer.array("weight", (width, width)), joined)
        return {"embeddings": g.add(product, layer.vector("bias", width))}


def encode(g: Graph, x: Tensor, scope: Scope, sizes: CodecSizes) -> Tensor:
    """Applies the acoustic encoder: samples [T, 1] to [rows, width]."""
    width = sizes.encoder_width
    x = convolve(g, x, scope / "conv1", width, TAPS, padding=TAPS // 2)
    for number, stride in enumerate(sizes.downsampling):
        block = scope / "block" / number
        x = snake(g, residual_units(g, x, block), block / "snake")
        width *= 2
        x = convolve(g, x, block / "down", width, 2 * stride, padding=(stride + 1) // 2, stride=stride)
    return snake_convolve(g, x, scope / "snake", scope / "conv2", sizes.acoustic_width, LAST_TAPS)


def acoustic_rows(samples: int, sizes: CodecSizes) -> int:
    """Returns how many rows the acoustic encoder gives for this number of samples."""
    for stride in sizes.downsampling:
        samples = (samples + 2 * ((stride + 1) // 2) - 2 * stride) // stride + 1
    return samples


def branch(g: Graph, x: Tensor, scope: Scope, sizes: SemanticSizes, width: int) -> Tensor:
    """Applies the convolutions behind HuBERT: [T, D] to [T', D']."""
    x = convolve(g, x, scope / "conv", width, sizes.kernel, padding=sizes.kernel // 2, bias=False)
    for number, (out, stride) in enumerate(zip(sizes.branch_widths, sizes.branch_strides, strict=True)):
        block, taps = scope / number, sizes.unit_kernel
        for unit, dilation in enumerate(sizes.dilations):
            unit_scope = block / "res" / unit
            padding = (taps - 1) // 2 * dilation
            inner = convolve(g, g.elu(x), unit_scope / "conv1", width, taps, padding, dilation=dilation, bias=False)
            x = g.add(x, convolve(g, g.elu(inner), unit_scope / "conv2", width, 1, bias=False))
        taps = 3 if stride == 1 else 2 * stride
        x, width = convolve(g, x, block / "conv", out, taps, (taps - 1) // 2, stride=stride), out
    return x


def quantise(embeddings: np.ndarray, codebooks: Sequence[np.ndarray]) -> np.ndarray:
    """Returns codes [rows, codebooks]: each codebook's nearest entry to the residual of the codebooks before it."""
    residual, codes = embeddings, np.empty((len(embeddings), len(codebooks)), dtype=np.int64)
    for number, book in enumerate(codebooks):
        distances = (residual**2).sum(1, keepdims=True) - 2 * residual @ book.T + (book**2).sum(1)
        codes[:, number] = distances.argmin(axis=1)
        residual = residual - book[codes[:, number]]
    return codes
