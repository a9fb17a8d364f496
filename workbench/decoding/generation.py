"""Options for the choice of a language model's next tokens, for users and for runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.core.options import MAX_TOKENS, option

ENDED = -1  # the token of a row of a batch that has ended
MAX_BEAMS = 64  # each beam stores its own keys and values, so memory grows with their number; papers use 5 to 20
MIN_TEMPERATURE = 0.01  # below it, scores divided by the temperature overflow in float16, and the result is that of 0
MAX_TEMPERATURE = 100.0  # here all tokens are practically equally likely
MAX_PENALTY = 100.0  # a much smaller value already prevents every repetition
MAX_SEED = (1 << 53) - 1  # JSON and browsers store whole numbers exactly up to this one


@dataclass(frozen=True)
class GenerationOptions:
    """The user's options for an autoregressive decoder; families inherit them in their own options."""

    max_new_tokens: int = option(
        512, "largest number of tokens to generate for one segment or prompt", minimum=1, maximum=MAX_TOKENS
    )
    min_new_tokens: int = option(0, "the text does not end before this many tokens", minimum=0, maximum=MAX_TOKENS)
    temperature: float = option(
        0.0, "0 takes the likeliest token; a higher value samples", smallest=MIN_TEMPERATURE, maximum=MAX_TEMPERATURE
    )
    top_k: int = option(0, "sample from this many likeliest tokens; 0 samples from all", minimum=0, maximum=MAX_TOKENS)
    top_p: float = option(
        1.0, "sample from the likeliest tokens that together reach this probability", above=0.0, maximum=1.0
    )
    repetition_penalty: float = option(
        1.0, "divides the scores of tokens that were generated before; 1 is off", minimum=0.01, maximum=MAX_PENALTY
    )
    seed: int = option(0, "seed of the sampling", minimum=0, maximum=MAX_SEED)


@dataclass(frozen=True)
class WritingOptions(GenerationOptions):
    """The user's options for a model that generates text."""

    alternatives: int = option(0, "report this many of the likeliest tokens at each step", minimum=0, maximum=20)


@dataclass(frozen=True)
class Decoding:
    """The decoding options for a runtime: the user's options and the model's stop tokens."""

    stop_ids: tuple[int, ...]
    max_new_tokens: int | np.ndarray = 512  # one number for all rows of a batch, or one for each [rows]
    min_new_tokens: int = 0
    beam_size: int = 1
    length_penalty: float = 1.0  # a beam's score is divided by the length to this power
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    pad_id: int = 0
    alternatives: int = 0  # number of likeliest tokens to report at each step

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn, instead of the likeliest taken."""
        return self.temperature > 0

    @property
    def is_greedy(self) -> bool:
        """Whether every token is the likeliest of the model's own logits: nothing is drawn, penalised or forbidden."""
        likeliest = not self.samples and self.beam_size == 1
        return likeliest and self.repetition_penalty == 1.0 and not self.min_new_tokens


def decoding_of(options: GenerationOptions, stop_ids: tuple[int, ...], **fields: int | float | np.ndarray) -> Decoding:
    """Returns the options for a runtime; `fields` sets those of `Decoding` that the family decides."""
    chosen: dict[str, int | float | np.ndarray] = {
        "max_new_tokens": options.max_new_tokens,
        "min_new_tokens": options.min_new_tokens,
        "temperature": options.temperature,
        "top_k": options.top_k,
        "top_p": options.top_p,
        "repetition_penalty": options.repetition_penalty,
        "seed": options.seed,
    }
    return Decoding(stop_ids, **{**chosen, **fields})  # type: ignore[arg-type]


def padded_ids(rows: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
    """Returns at least one row of ids as an array, int64 [rows, longest], padded with `ENDED`."""
    table = np.full((len(rows), max(map(len, rows))), ENDED, dtype=np.int64)
    for padded_row, row in zip(table, rows, strict=True):
        padded_row[: len(row)] = row
    return table
