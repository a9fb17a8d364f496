"""The steps of a layer of a language model of the Qwen, Llama and Mistral families, with the checkpoint's parameters.

Such a layer is attention with rotary positions and shared key heads, then a gated feed-forward part, each behind an
RMSNorm and inside a residual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from workbench.compare.guesses import sinusoids
from workbench.compare.guesses.attended import Attention, Rotation, all_keys, earlier_keys
from workbench.compare.guesses.chains import Function, Step, Wrong, chain, linear, norm, pre_norm
from workbench.compare.guesses.functions import ACTIVATIONS
from workbench.compare.guesses.networks import Layers, Stages
from workbench.compare.guesses.other_attention import exchanged_parts, other_rotations, other_scores
from workbench.compare.guesses.scaled_rope import SCALINGS, Scaled

LANGUAGE_EPSILONS = (1e-6, 1e-5)
HEAD_WIDTHS = (128, 64, 32, 96, 80)
MIN_ROWS = 3  # fewer do not show the base of the rotary positions
PARTS = (
    "norm1",
    "norm2",
    *(f"attention.{each}" for each in ("query", "key", "value", "output")),
    *(f"mlp.{each}" for each in ("gate", "up", "down")),
)
"""The names of the parameters of a layer."""
HEAD_NORMS = ("attention.query_norm", "attention.key_norm")
"""Those of the norms of each head's queries and keys, as in Qwen3."""
_ROLES = {"query": "queries", "key": "keys", "value": "values"}


class Rope(NamedTuple):
    """Rotary positions, and the width of the heads that they turn."""

    width: int
    base: float
    layout: str  # a key of `rotations.LAYOUTS`
    scaling: str = ""  # a key of `SCALINGS`; empty for none

    def rotation(self, count: int) -> Rotation:
        """Returns the rotation of queries and keys at positions 0 to `count` - 1."""
        plain = sinusoids.rates(self.width, self.base)
        rates, factor = SCALINGS[self.scaling].scaled(plain) if self.scaling else Scaled(plain)
        angles = factor * np.exp(1j * np.arange(count)[:, None] * rates)
        return Rotation(self.layout, angles, angles)


def language_layer(layers: Layers, epsilon: float, _: Stages, layer: str, rope: Rope) -> Step:
    """Returns a layer of a language model, with norms of the heads where `layers` has them."""
    first, second = layers[f"{layer}.norm1"], layers[f"{layer}.norm2"]
    first_norm = norm("the norm in front of attention", first, epsilon, [("the layer's second norm", second)], False)
    name = "the feed-forward part"
    second_norm = norm(f"the norm in front of {name}", second, epsilon, [("the layer's first norm", first)], False)
    attention, gated = _Attention(layers, epsilon, layer, rope).step(), _gated(layers, layer)
    whole = chain("the layer", pre_norm("attention", first_norm, attention), pre_norm(name, second_norm, gated))
    parallel = Wrong(
        "attention and feed-forward part both read the layer's input, where the reference's stand in a row",
        lambda x: x + attention(first_norm(x)) + gated(second_norm(x)),
    )
    return whole._replace(wrong=[*whole.wrong, parallel])


class _Attention:
    """The attention of a layer from its normed input to its output projection."""

    def __init__(self, layers: Layers, epsilon: float, layer: str, rope: Rope):
        def projection(part: str, words: str) -> Step:
            return linear(f"the projection of {words}", layers[f"{layer}.attention.{part}"])

        self._rope = rope
        self._outputs = [len(layers[f"{layer}.attention.{part}"].weight) for part in _ROLES]
        self._projections = {part: projection(part, words) for part, words in _ROLES.items()}
        self._output = linear("the output projection", layers[f"{layer}.attention.output"])
        self._norms = {
            part: norm(f"the norm of the {_ROLES[part]}", parameters, epsilon, centred=False)
            for part in ("query", "key")
            if (parameters := layers.get(f"{layer}.attention.{part}_norm"))
        }

    def step(self) -> Step:
        """Returns the attention and what a port may compute in its place."""
        return Step("attention", self._computed(), list(self._wrong()))

    def _computed(
        self,
        changed: Callable[[Attention], Attention] = lambda right: right,
        *,
        projections: dict[str, Function] | None = None,
        norms: dict[str, Function] | None = None,
        output: Function | None = None,
    ) -> Function:
        """Returns the attention with other functions in the place of some of its steps."""

        def compute(x: np.ndarray) -> np.ndarray:
            attention = changed(self._attention(x, projections or {}, norms or {}))
            return np.asarray((output or self._output)(attention.context(np.arange(len(x)))))

        return compute

    def _attention(self, x: np.ndarray, projections: dict[str, Function], norms: dict[str, Function]) -> Attention:
        heads = {}
        for part, projection in self._projections.items():
            rows = projections.get(part, projection)(x).reshape(len(x), -1, self._rope.width)
            normed = norms.get(part, self._norms.get(part))
            heads[part] = normed(rows) if normed else rows
        return self._from(*heads.values())

    def _from(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Attention:
        """Returns the attention of queries, keys and values [rows, heads, width], before RoPE."""
        return Attention(q, k, v, self._rope.width**-0.5, earlier_keys, self._rope.rotation(len(q)))

    def _wrong(self) -> Iterator[Wrong]:
        for part, projection in self._projections.items():
            for words, function, option in projection.wrong:
                yield Wrong(words, self._computed(projections={part: function}), option)
        key, value = self._projections["key"].right, self._projections["value"].right
        yield Wrong(
            "the projections of keys and values are exchanged", self._computed(projections={"key": value, "value": key})
        )
        for words, function, option in self._output.wrong:
            yield Wrong(words, self._computed(output=function), option)
        for part, each in self._norms.items():
            for words, function, option in each.wrong:
                yield Wrong(words, self._computed(norms={part: function}), option)
        if self._norms:
            of_queries, of_keys = self._norms["query"].right, self._norms["key"].right
            identity: dict[str, Function] = {"query": lambda x: x, "key": lambda x: x}
            yield Wrong("the norms of queries and keys are left out", self._computed(norms=identity))
            yield Wrong(
                "the norms of queries and keys are exchanged",
                self._computed(norms={"query": of_keys, "key": of_queries}),
            )
            yield Wrong(
                "the norms of queries and keys stand behind RoPE, where the reference's stand before it",
                self._computed(self._normed_behind, norms=identity),
            )
        if self._rope.scaling:
            unscaled = self._rope._replace(scaling="")
            yield Wrong(
                f"RoPE is not scaled, where the reference's is scaled {self._rope.scaling}",
                self._computed(lambda right: replace(right, rotation=unscaled.rotation(len(right.q)))),
            )
        yield from self._other_attentions()

    def _normed_behind(self, unnormed: Attention) -> Attention:
        rotation = unnormed.rotation
        assert rotation is not None
        q = self._norms["query"](rotation.turned(unnormed.q, rotation.queries))
        k = self._norms["key"](rotation.turned(unnormed.k, rotation.keys))
        return replace(unnormed, q=q, k=k, rotation=None)

    def _other_attentions(self) -> Iterator[Wrong]:
        """Yields attentions with other scores, masks and rotary positions."""

        def others(right: Attention) -> Iterator[tuple[str, Attention]]:
            yield from other_scores(right, (all_keys, earlier_keys), ())
            yield from exchanged_parts(right)
            yield from other_rotations(right)

        def numbered(number: int) -> Callable[[Attention], Attention]:
            return lambda right: next(islice(others(right), number, None))[1]

        width = self._rope.width
        if not any(count % width for count in self._outputs):  # else the heads have another width
            q, k, v = (np.zeros((MIN_ROWS, count // width, width)) for count in self._outputs)
            example = self._from(q, k, v)
            for number, (words, _) in enumerate(others(example)):
                yield Wrong(words, self._computed(numbered(number)))


def _gated(layers: Layers, layer: str) -> Step:
    """Returns the feed-forward part without its norm and residual: down(SiLU(gate) * up)."""
    gate, up, down = (
        linear(f"the projection {each}", layers[f"{layer}.mlp.{each}"]) for each in ("gate", "up", "down")
    )
    silu = ACTIVATIONS["SiLU"]

    def of(
        joined: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda g, u: silu(g) * u,
        gate: Function = gate.right,
        up: Function = up.right,
        down: Function = down.right,
    ) -> Function:
        return lambda x: down(joined(gate(x), up(x)))

    return Step(
        "the feed-forward part",
        of(),
        [
            *(Wrong(words, of(gate=function), option) for words, function, option in gate.wrong),
            *(Wrong(words, of(up=function), option) for words, function, option in up.wrong),
            *(Wrong(words, of(down=function), option) for words, function, option in down.wrong),
            Wrong("the activation is on the projection up, where the reference's is on the gate",
                  of(lambda g, u: g * silu(u))),
            Wrong("the gate is left out: only the activated projection up goes on", of(lambda g, u: silu(u))),
            Wrong("the projection up is left out: only the activated gate goes on", of(lambda g, u: silu(g))),
            Wrong("the gate is activated behind its product with the projection up", of(lambda g, u: silu(g * u))),
            *(
                Wrong("the activation of the gate is {}, where the reference's is SiLU",
                      of(lambda g, u, function=function: function(g) * u), name)  # type: ignore[misc]
                for name, function in ACTIVATIONS.items()
                if name != "SiLU"
            ),
        ],
    )  # fmt: skip
