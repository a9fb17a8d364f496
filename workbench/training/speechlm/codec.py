"""The codec of the demo SpeechLM: an Xcodec whose weights are computed, not trained.

The class and the files are those of transformers' `XcodecModel`. The strided convolutions of the encoder only move the
320 samples of a frame into 320 channels; its last convolution is a principal component analysis of a frame and 80
samples on both sides. Eight k-means codebooks quantise the result, each one the residual of those before it. The
decoder's first convolution is the least-squares map from seven quantised frames back to the samples of the middle one,
and its transposed convolutions move them from channels to time. Residual units and the semantic branch have no effect.

The voices of the demo count ten times in the fit: the codec is good for them, and poor for other voices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

STRIDES = (8, 5, 4, 2)
FRAME = 320  # samples of a frame: the product of the strides
REACH = 80  # samples on both sides of a frame that its code depends on
CODES = 1024
LEVELS = 8
TAPS = 7  # frames that the decoder sees
SEMANTIC = 16  # width of the semantic branch, which has no effect

Samples = NDArray[np.float32]


@dataclass(frozen=True)
class CodecOptions:
    """The size and the fit of the codec."""

    hidden: int = 160  # principal components
    pre_emphasis: float = 0.5  # more of it favours high frequencies
    weight: int = 10  # how often the clips of the demo's voices count
    rounds: int = 5  # of k-means
    ridge: float = 1e-3  # of the least squares, relative to the mean of the diagonal
    alpha: float = 1e-3  # of Snake, x + sin(a x)^2 / a, which is nearly linear for small a


def make_codec(hidden: int) -> Any:
    """Returns an `XcodecModel` of the demo's dimensions, not yet fitted."""
    from transformers import XcodecConfig, XcodecModel

    config = XcodecConfig(
        acoustic_model_config={
            "model_type": "dac",
            "encoder_hidden_size": FRAME // 2 ** len(STRIDES),  # the last stage then has one channel for each sample
            "decoder_hidden_size": FRAME,
            "downsampling_ratios": list(STRIDES),
            "upsampling_ratios": list(STRIDES[::-1]),  # the wide layers run at the low rates
            "hidden_size": hidden,
        },
        semantic_model_config={
            "model_type": "hubert",
            "hidden_size": SEMANTIC,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": SEMANTIC,
            "conv_dim": [8] * 7,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 2,
        },
    )
    return XcodecModel(config).eval()


def fit_codec(demo: Sequence[Samples], general: Sequence[Samples], options: CodecOptions) -> Any:
    """Returns a codec that is good for the clips of the demo's voices and worse for general clips (mono, 16 kHz).

    Every clip must be a whole number of frames long. The fit assumes silence on both sides of it.
    """
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    clips = [*demo, *general]
    weights = torch.tensor([options.weight] * len(demo) + [1] * len(general))
    analysis = principal_components(clips, weights, options)
    latents = [torch.from_numpy(windows(clip, options.pre_emphasis)) @ analysis for clip in clips]
    frames = torch.cat([part.repeat(int(weight), 1) for part, weight in zip(latents, weights, strict=True)])
    codebooks = residual_codebooks(frames, options.rounds, rng)
    quantised = [dequantise(quantise(part, codebooks), codebooks) for part in latents]
    synthesis = least_squares(quantised, clips, weights, options.ridge)

    codec = make_codec(options.hidden)
    with torch.no_grad():
        assign(codec, analysis, synthesis, codebooks, options)
    return codec


# --- analysis and synthesis ------------------------------------------------------------------------------------------


def windows(clip: Samples, pre_emphasis: float) -> Samples:
    """Returns the pre-emphasised samples around each frame [frames, 480]."""
    before = np.concatenate([[np.float32(0)], clip[:-1]])
    padded = np.pad(clip - np.float32(pre_emphasis) * before, REACH)
    frames = len(clip) // FRAME
    return np.stack([padded[start * FRAME : (start + 1) * FRAME + 2 * REACH] for start in range(frames)])


def principal_components(clips: Sequence[Samples], weights: Tensor, options: CodecOptions) -> Tensor:
    """Returns the analysis matrix [480, hidden]: tapered principal components of the windows."""
    edge = torch.sin(torch.pi / 2 * (torch.arange(2 * REACH) + 0.5) / (2 * REACH))
    taper = torch.cat([edge, torch.ones(FRAME - 2 * REACH), edge.flip(0)])
    covariance = torch.zeros(len(taper), len(taper), dtype=torch.float64)
    for clip, weight in zip(clips, weights.tolist(), strict=True):
        rows = (torch.from_numpy(windows(clip, options.pre_emphasis)) * taper).double()
        covariance += weight * rows.T @ rows
    _, vectors = torch.linalg.eigh(covariance)  # by ascending eigenvalue
    return (taper[:, None] * vectors.flip(1)[:, : options.hidden]).float()


def least_squares(quantised: Sequence[Tensor], clips: Sequence[Samples], weights: Tensor, ridge: float) -> Tensor:
    """Returns the map [TAPS, hidden, 320] from quantised frames around a frame to its samples."""
    hidden = quantised[0].shape[1]
    normal = torch.zeros(TAPS * hidden, TAPS * hidden)
    moment = torch.zeros(TAPS * hidden, FRAME)
    for part, clip, weight in zip(quantised, clips, weights.tolist(), strict=True):
        padded = nn.functional.pad(part, (0, 0, TAPS // 2, TAPS // 2))
        rows = torch.cat([padded[tap : tap + len(part)] for tap in range(TAPS)], dim=1)
        normal += weight * rows.T @ rows
        moment += weight * rows.T @ torch.from_numpy(clip).view(-1, FRAME)
    normal.diagonal().add_(ridge * normal.diagonal().mean())
    return torch.linalg.solve(normal.double(), moment.double()).float().view(TAPS, hidden, FRAME)


# --- codebooks -------------------------------------------------------------------------------------------------------


def residual_codebooks(frames: Tensor, rounds: int, rng: np.random.Generator) -> Tensor:
    """Returns codebooks [8, 1024, hidden] by k-means on frames [n, hidden]. Each one quantises the residual of those
    before it.

    Code 0 of each is the zero vector, so that silence has one row of codes and decodes to silence.
    """
    codebooks = []
    residual = frames
    for _ in range(LEVELS):
        book = residual[torch.from_numpy(rng.choice(len(residual), CODES, replace=len(residual) < CODES))].clone()
        for _ in range(rounds):
            book[0] = 0
            nearest = _nearest(residual, book)
            counts = torch.bincount(nearest, minlength=CODES)
            sums = torch.zeros_like(book).index_add_(0, nearest, residual)
            is_used = counts > 0
            book[is_used] = sums[is_used] / counts[is_used, None]
            unused_count = int((~is_used).sum())
            book[~is_used] = residual[torch.from_numpy(rng.choice(len(residual), unused_count))]
        book[0] = 0
        codebooks.append(book)
        residual = residual - book[_nearest(residual, book)]
    return torch.stack(codebooks)


def _nearest(rows: Tensor, book: Tensor) -> Tensor:
    half_norms = 0.5 * book.square().sum(dim=1)
    return torch.cat([(part @ book.T - half_norms).argmax(dim=1) for part in rows.split(8192)])


def quantise(latents: Tensor, codebooks: Tensor) -> Tensor:
    """Returns the codes [frames, 8] of latents [frames, hidden]."""
    codes = []
    for book in codebooks:
        codes.append(_nearest(latents, book))
        latents = latents - book[codes[-1]]
    return torch.stack(codes, dim=1)


def dequantise(codes: Tensor, codebooks: Tensor) -> Tensor:
    """Returns the sums [frames, hidden] of the codes' vectors."""
    return codebooks[torch.arange(LEVELS), codes].sum(dim=1)


# --- into the network ------------------------------------------------------------------------------------------------


def channel_of_sample() -> NDArray[np.int64]:
    """Returns, for each sample of a frame, its channel after the encoder's strides (and before the decoder's)."""
    samples = np.arange(FRAME)
    channel = np.zeros(FRAME, dtype=np.int64)
    for stride in STRIDES:  # each takes the last digit of the sample's place, and appends it to the channel
        samples, place = np.divmod(samples, stride)
        channel = channel * stride + place
    return channel


def assign(codec: Any, analysis: Tensor, synthesis: Tensor, codebooks: Tensor, options: CodecOptions) -> None:
    """Writes the fit into the codec's weights."""
    encoder, decoder, hidden = codec.acoustic_encoder, codec.acoustic_decoder, options.hidden
    for part in (encoder, decoder):
        for name, value in part.named_parameters():
            inside = "res_unit" in name  # what they add is zero
            value.fill_((1.0 if inside else options.alpha) if name.endswith("alpha") else 0.0)
    channel = torch.from_numpy(channel_of_sample())

    encoder.conv1.weight[0, 0, 3] = 1.0
    encoder.conv1.weight[0, 0, 2] = -options.pre_emphasis
    width = 1
    for block, stride in zip(encoder.block, STRIDES, strict=True):
        for place in range(stride):
            rows = torch.arange(width)
            block.conv1.weight[rows * stride + place, rows, -(-stride // 2) + place] = 1.0
        width *= stride
    last = torch.zeros_like(encoder.conv2.weight)  # [hidden, channels, frames before, at, after]
    last[:, channel[-REACH:], 0] = analysis[:REACH].T
    last[:, channel, 1] = analysis[REACH:-REACH].T
    last[:, channel[:REACH], 2] = analysis[-REACH:].T
    encoder.conv2.weight.copy_(last)

    decoder.conv1.weight[channel] = synthesis.permute(2, 1, 0)
    for block, stride in zip(decoder.block, STRIDES[::-1], strict=True):
        width //= stride
        for place in range(stride):
            rows = torch.arange(width)
            block.conv_t1.weight[rows * stride + place, rows, -(-stride // 2) + place] = 1.0
    decoder.conv2.weight[0, 0, 3] = 1.0

    for linear in (codec.fc, codec.fc2):
        linear.weight.zero_()
        linear.bias.zero_()
        linear.weight[:hidden, :hidden] = torch.eye(hidden)
    for quantizer, book in zip(codec.quantizer.quantizers, codebooks, strict=True):
        quantizer.codebook.embed.zero_()
        quantizer.codebook.embed[:, :hidden] = book
        quantizer.codebook.embed_avg.copy_(quantizer.codebook.embed)
        quantizer.codebook.cluster_size.fill_(1.0)


# --- use -------------------------------------------------------------------------------------------------------------


def encode(codec: Any, clip: Samples) -> NDArray[np.int64]:
    """Returns the codes [frames, 8] of a clip of whole frames."""
    with torch.no_grad():
        return np.asarray(codec.encode(torch.from_numpy(clip)[None, None]).audio_codes[0].T.numpy())


def decode(codec: Any, codes: NDArray[np.int64]) -> Samples:
    """Returns the samples of codes [frames, 8]."""
    with torch.no_grad():
        audio = codec.decode(torch.from_numpy(np.ascontiguousarray(codes.T))[None]).audio_values
    return np.asarray(audio[0, 0].numpy(), dtype=np.float32)
