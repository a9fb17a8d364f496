"""Ten faults that ports of speech models have, each planted in one place of an open PyTorch session.

A planter alters one thing of SenseVoice or Fun-ASR-Nano in this process, until its `with` block ends, and says by what
the fault is, not by what a comparison finds, which stage is the first one recorded behind it. Where a fault lies is
drawn. Of four of the ten one family has only a relative:

- SenseVoice has no rotary positions: `rope_base` changes the base of its sinusoids, as of all its positions.
- Fun-ASR-Nano has no query tokens: `queries_swapped` swaps two tokens of its prompt.
- Fun-ASR-Nano's features are not normalised: `cmvn_twice` normalises them by the recording's own statistics.
- SenseVoice has no adaptor: `f16_overflow` is within the feed-forward of a layer.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.audio.cmvn import Cmvn
from workbench.trace.trace import Trace

EPS = 1e-3  # in place of 1e-5
# Change at the median position that another epsilon has to make. The reference is up to 4.3e-7 from float64 there, and
# up to four times as much counts as noise.
LEAST = 2.5e-6
TIMES = 2.0**14  # makes values of a few units overflow float16, and rounds nothing in float32


@dataclass(frozen=True)
class Planted:
    """Where a fault is."""

    stage: str  # the first stage recorded behind it
    alone: tuple[str, ...] = ()  # stages, or globs of them, that it changes itself besides; the others only inherit it


class Parts:
    """What a planter may alter of an open session; as it was when the `with` block ends.

    Args:
        reference: a trace of the intact model.
        seed: of what is drawn.
    """

    def __init__(self, session: Any, reference: Trace, seed: int = 0):
        self.reference, self.draw = reference, np.random.default_rng(seed)
        self.recogniser = session.recogniser if hasattr(session, "recogniser") else session.writer
        self.ear = getattr(self.recogniser, "encoder", self.recogniser)
        self.language = self.recogniser.language.network if hasattr(self.recogniser, "language") else None
        self._undo = contextlib.ExitStack()

    @property
    def network(self) -> Any:
        """What hears."""
        return self.ear.network.network

    @property
    def encoder(self) -> Any:
        """The network of the encoder."""
        return self.network.encoder if hasattr(self.network, "encoder") else self.network.audio_encoder

    @property
    def blocks(self) -> list[Any]:
        """The SAN-M encoder's, of both stages."""
        return [*self.encoder.encoders0, *self.encoder.encoders, *getattr(self.encoder, "tp_encoders", ())]

    def one_of(self, count: int) -> int:
        """Which of so many."""
        return int(self.draw.integers(count))

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Gives an object another attribute; a tensor in place of a parameter becomes one."""
        before = getattr(owner, name)
        if isinstance(before, nn.Parameter):
            value = nn.Parameter(value.contiguous(), requires_grad=False)
        self._undo.callback(setattr, owner, name, before)
        setattr(owner, name, value)

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()


Planter = Callable[[Parts], Planted]


def norm_eps(parts: Parts) -> Planted:
    """A layer norm with the epsilon 1e-3, of those in which that changes what is recorded by `LEAST` or more."""
    places = norms(parts.reference)
    number, name = places[parts.one_of(len(places))]
    norm = getattr(parts.blocks[number], name)
    assert norm.eps == 1e-5
    parts.set(norm, "eps", EPS)
    return behind_norm(number, name)


def norms(trace: Trace) -> list[tuple[int, str]]:
    """The norms of a SAN-M encoder, by block and name, whose epsilon matters: see `LEAST`.

    A norm divides by sqrt(v + e), v the variance of a position, so that it becomes smaller by (1e-3 - 1e-5) / 2v. Where
    v is in the hundreds, as in a stack's first blocks, that is not even a rounding in float32.
    """
    order, found = list(trace), []
    x = trace["encoder.input"].astype(np.float64)
    for number in range(sum(stage.endswith(".fsmn") for stage in order)):
        stage = f"encoder.layers.{number}"
        memory, attention, y = (
            trace[name].astype(np.float64) for name in (f"{stage}.fsmn", f"{stage}.attention", stage)
        )
        between = memory + attention + (x if x.shape == y.shape else 0)
        # The part that the feed-forward has in the block's output, by position.
        part = np.linalg.norm(y - between, axis=1) / np.linalg.norm(y, axis=1)
        found += [(number, "norm1", np.median(_smaller(x))), (number, "norm2", np.median(_smaller(between) * part))]
        after = order[order.index(stage) + 1]
        x = trace[after].astype(np.float64) if after == "encoder.after_norm" else y
    return [(number, name) for number, name, change in found if change >= LEAST]


def _smaller(x: np.ndarray) -> np.ndarray:
    return (EPS - 1e-5) / (2 * x.var(axis=1))


def behind_norm(number: int, name: str) -> Planted:
    """What a norm of a SAN-M block changes: the memory and the attention, or the feed-forward."""
    stage = f"encoder.layers.{number}"
    return Planted(f"{stage}.fsmn", (f"{stage}.attention",)) if name == "norm1" else Planted(stage)


def fsmn_tap(parts: Parts) -> Planted:
    """One tap of a block's memory is zero."""
    number = parts.one_of(len(parts.blocks))
    memory = parts.blocks[number].self_attn.fsmn_block
    weight = memory.weight.detach().clone()
    weight[:, :, parts.one_of(weight.shape[2])] = 0
    parts.set(memory, "weight", weight)
    return Planted(f"encoder.layers.{number}.fsmn")


def positions_from_zero(parts: Parts) -> Planted:
    """Positions are counted from 0, not from 1."""
    parts.set(_sanm(), "sinusoid", lambda frames, depth, like: sinusoid(frames, depth, first=0).to(like.dtype))
    return Planted("encoder.input")


def no_scale(parts: Parts) -> Planted:
    """Features are not multiplied by the square root of the width."""
    parts.set(parts.encoder, "config", replace(parts.encoder.config, output_size=1))
    return Planted("encoder.input")


def cmvn_twice(parts: Parts) -> Planted:
    """Features are normalised once more than they should be."""
    frontend = parts.ear.features.frontend
    lfr = parts.reference["frontend.lfr"]
    once = Cmvn(-lfr.mean(axis=0), 1 / lfr.std(axis=0).clip(0.1))
    parts.set(frontend, "cmvn", once if frontend.cmvn is None else twice(frontend.cmvn))
    return Planted("frontend.features")


def transposed(parts: Parts) -> Planted:
    """A square weight is transposed: of the attention in a block of the encoder, the adaptor or the language model."""
    places = [(block.self_attn.linear_out, f"encoder.layers.{n}.attention") for n, block in enumerate(parts.blocks)]
    if parts.language is not None:
        blocks, layers = parts.network.audio_adaptor.blocks, parts.language.model.layers
        places += [(block.self_attn.linear_v, f"adaptor.layers.{n}") for n, block in enumerate(blocks)]
        places += [(layer.self_attn.o_proj, f"llm.layers.{n}") for n, layer in enumerate(layers)]
    linear, stage = places[parts.one_of(len(places))]
    parts.set(linear, "weight", linear.weight.detach().T)
    return Planted(stage)


def f16_overflow(parts: Parts) -> Planted:
    """Two layers around a ReLU, of the adaptor or of a feed-forward, scaled against each other, with float16 between.

    In float32 the factor, a power of two, changes no result; in float16 what it multiplies is beyond 65504.
    """
    number = parts.one_of(len(parts.blocks))
    feed, stage = parts.blocks[number].feed_forward, f"encoder.layers.{number}"
    pair: tuple[Any, Any] = (feed, "w_1"), (feed, "w_2")
    if parts.language is not None:
        pair, stage = ((parts.network.audio_adaptor, name) for name in ("linear1", "linear2")), "adaptor.layers.0"  # type: ignore[assignment]
    wide, narrow = (getattr(owner, name) for owner, name in pair)
    parts.set(wide, "weight", TIMES * wide.weight.detach())
    parts.set(wide, "bias", TIMES * wide.bias.detach())
    parts.set(narrow, "weight", narrow.weight.detach() / TIMES)
    parts.set(wide, "forward", lambda x: nn.functional.linear(x, wide.weight, wide.bias).half().to(x.dtype))
    return Planted(stage)


def rope_base(parts: Parts) -> Planted:
    """Rotary positions of the base 1e4 in place of 1e6; without them, sinusoidal ones of the base 1e3, not 1e4."""
    if parts.language is None:
        parts.set(_sanm(), "sinusoid", lambda frames, depth, like: sinusoid(frames, depth, base=1e3).to(like.dtype))
        return Planted("encoder.input")
    rotary = parts.language.model.rotary_emb
    steps = torch.arange(len(rotary.inv_freq)) / len(rotary.inv_freq)
    parts.set(rotary, "inv_freq", (1e4**-steps).to(rotary.inv_freq.dtype))
    return Planted("llm.layers.0", ("llm.layers.*",))


def queries_swapped(parts: Parts) -> Planted:
    """Two query tokens change places; without them, two tokens of the prompt that differ."""
    if parts.language is None:
        from workbench.pipelines.recognition import sensevoice

        right = sensevoice.query_ids
        first = parts.one_of(3)
        parts.set(sensevoice, "query_ids", lambda options: exchanged(right(options), first))
        return Planted("encoder.input")
    ids = parts.ear.prompt_ids(parts.ear.options_class())
    spoken = set(np.flatnonzero(ids == parts.ear.placeholder).tolist())
    places = [n for n in range(len(ids) - 1) if ids[n] != ids[n + 1] and not spoken & {n, n + 1}]
    first = places[parts.one_of(len(places))]
    parts.set(parts.ear, "prompt_ids", lambda options: np.array(exchanged(ids.tolist(), first)))
    return Planted("prompt.tokens", ("prompt.text", "llm.embeddings"))


def lfr_padding(parts: Parts) -> Planted:
    """One copy of the first frame too few, or too many, stands before the stacked frames."""
    from workbench.audio import frontend

    off = (-1, 1)[parts.one_of(2)]
    parts.set(frontend, "stack_frames", lambda features, m, n: stacked(features, m, n, (m - 1) // 2 + off))
    return Planted("frontend.lfr")


FAULTS: Mapping[str, Planter] = {
    "layer-norm eps 1e-5 to 1e-3": norm_eps,
    "one FSMN tap zeroed": fsmn_tap,
    "positions from 0 instead of 1": positions_from_zero,
    "missing sqrt(d) scale": no_scale,
    "CMVN applied twice": cmvn_twice,
    "a transposed weight": transposed,
    "f16 overflow in the adaptor": f16_overflow,
    "RoPE base wrong": rope_base,
    "query tokens swapped": queries_swapped,
    "LFR padding off by one": lfr_padding,
}
"""The ten, for both families."""


def _sanm() -> Any:
    from workbench.runtimes.pytorch.networks import sanm

    return sanm


def sinusoid(frames: int, depth: int, first: int = 1, base: float = 10000.0) -> Tensor:
    """Sines and cosines [frames, depth] of positions from `first` on, as the encoder adds them, in float32."""
    half = depth // 2
    rates = torch.exp(torch.arange(half) * -(math.log(base) / (half - 1)))
    angles = torch.arange(first, first + frames)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def twice(cmvn: Cmvn) -> Cmvn:
    """The statistics that do at once what these do when applied twice: ((x + a) b + a) b = (x + a + a / b) b b."""
    return Cmvn(cmvn.shift + cmvn.shift / cmvn.scale, cmvn.scale**2)


def exchanged(ids: Any, first: int) -> tuple[int, ...]:
    """Ids of which one and the next have changed places."""
    found = list(ids)
    found[first : first + 2] = found[first + 1], found[first]
    return tuple(found)


def stacked(features: np.ndarray, m: int, n: int, left: int) -> np.ndarray:
    """Frames stacked by `m`, every n-th kept, with `left` copies of the first before them."""
    frames = len(features)
    places = np.arange(0, frames, n)[:, None] + np.arange(m) - left
    return features[places.clip(0, frames - 1)].reshape(len(places), -1).astype(np.float32)
