"""How far from float64 a candidate may be while its distance still counts as noise: factors, and where they come from.

The factors multiply the distance of the reference, or that of its model in the candidate's precision (its *peer*). This
file knows no traces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_FEW_POSITIONS = 10  # with this many positions, the factors are at least twice those for many positions


@dataclass(frozen=True)
class Factors:
    """The multiples of the reference's distance from float64 that still count as noise."""

    whole: float  # for the stage's relative L2
    typical: float  # for that of its median position
    worst: float = math.inf  # for that of its worst position
    channel: float = math.inf  # for that of a channel at the median position, see `by_channel`
    steady: float = math.inf  # for that of the mean over positions, see `steady`

    def for_positions(self, positions: int) -> Factors:
        """Returns the factors for a stage with `positions` positions.

        With few positions the reference's own distance varies: by chance it is several times smaller than usual. In
        recordings of a third of a second (5 to 12 frames), correct kernels were up to 22 times the reference's distance
        away, where attention amplified the rounding of one frame.
        """
        growth = 1 + _FEW_POSITIONS / max(positions, 1)
        outlier = (1.6 * _FEW_POSITIONS / max(positions, 1)) ** 2
        return Factors(
            self.whole * (growth + outlier),
            self.typical * growth,
            self.worst * (growth + outlier),
            self.channel * growth,
            self.steady * growth,
        )


END_TO_END_FACTORS = Factors(5.0, 4.0)
"""Factors where errors add up (end to end): correct kernels that round in another way differ by a few times.

Measured with 9,000 stages of PyTorch (two layouts of weights, one and two threads), ggml and vLLM, all in float32, on
the demo models with all short recordings, 40 small models with random weights and a SenseVoice of the published size:
at most 2.8 times the reference's distance, 3.0 times at the median position, 99.9 % below 2.0. The largest come from
few positions where a network amplifies any rounding. The median ignores these positions, so it separates a small change
of all positions, such as another epsilon, from noise.
"""

ISOLATED_FACTORS = Factors(4.0, 2.5)
"""Factors where each stage is computed from the reference's own inputs.

Measured in the same way: at most 2.5 times in 5,000 stages, 1.5 times at the median position."""

PEER_FACTORS = Factors(8.0, 2.6, 12.0, 4.5)
"""Factors relative to a peer: the reference's own model in the candidate's half precision, with every step rounded.

In float32, correct kernels differ in the order of their sums. In half precision they all round the same weights and sum
in float32; they differ in the steps that they round. Measured with 600 ports of the demo models in bfloat16 and float16
(`tests.support.ports`), on recordings and prompts of 20 to 139 positions, with 14,760 stages: at most 2.7 times the
peer's distance at the median position; for whole stages at most 3 times in 99.9 %, and 7 times where attention
amplified one; channels at most 83 % of their bound. A port that rounds the mean or variance inside a norm is not one of
them.
"""

CLEAN_FACTORS = Factors(4.0, 1.4, 6.0, 6.0, 2.0)
"""Factors relative to the farthest of several clean computations in the candidate's precision (`spread`).

The median position and the mean over positions decide: of 7 computations in bfloat16 that differ in the order of their
sums, the logarithms of these distances have a deviation of 0.1. The whole and the worst position keep wide bounds,
because attention may amplify the rounding of one position in one computation and not in the others.
`benchmarks/PARITY.md` says how far correct ports were.
"""

ROUNDING_RMS = 0.42
"""The root mean square of the relative errors of one rounding, divided by the unit roundoff.

It is the allowed error of a stage that happens to be exact in the peer. Errors are uniform within half a step on either
side, and values in one binade differ by up to a factor of two: sqrt(1/3) times the root mean square of 1/m for m
uniform in 1 to 2, which is sqrt(1/2)."""

MAX_CHANNEL_WIDENING = 2.5
"""The largest multiple of the peer's median distance that also widens the bounds of all channels.

Where attention amplifies rounding, it does so in every channel."""

CHANNEL_DEVIATIONS = 7.0
"""How far one channel may stand out, in deviations of the logarithms of all channels' multiples of the peer's distance.

A factor of two is always allowed. One wrong row of a matrix makes one channel stand out, however small its share of the
whole is. Correct kernels were at most 5.3 deviations apart."""

CLEAN_CHANNEL_DEVIATIONS = 10.0
"""As `CHANNEL_DEVIATIONS`, but relative to several clean computations: the farthest in each channel deviate less."""

POSITION_FACTOR = 10.0
"""The largest allowed relative L2 of one position, as a multiple of the limit of the candidate's preset.

For types finer than blocks of 4 bits it never exceeds 1. One wrong position among many, such as a swapped token,
changes the whole only a little, so it needs a separate limit. Correct kernels reached 1 times the preset's limit in
float32, 2 times in float16 and in blocks of 4 bits, 4 times in blocks of 8 bits.
"""

LEADING_SHARE = 0.6
"""The share of its bound from which a stage just before a bug counts as a bug too, end to end.

A fault that is barely within its bound grows in later stages, and the first stage beyond its bound is then not the
faulty one. Noise rarely takes such a large share, and hardly ever just before a bug."""

PEER_LEADING_SHARE = 0.85
"""As `LEADING_SHARE`, but relative to a peer, whose bounds are narrower."""

FRONT_END_ERROR = 1e-6
"""The assumed distance of the reference from float64 where the float64 trace holds a stage in float32 (the front end).

Filter banks of the shipped recordings are 5e-7 from their definition in float64. Features after CMVN have smaller
values and are twice as far."""
