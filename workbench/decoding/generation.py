"""How a language model's next tokens are chosen: the options that all runtimes have, and their plain form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.core.options import MOST_TOKENS, option

ENDED = -1  # in place of a token, for a row of a batch that has ended
MOST_BEAMS = 64  # each holds keys and values of its own, so that memory grows with them; papers follow 5 to 20
COLDEST = 0.01  # below it, scores divided by the temperature overflow in float16, and all is as at 0
HOTTEST = 100.0  # all tokens are as good as equally likely then
MOST_PENALTY = 100.0  # no token is written twice with far less
LARGEST_SEED = (1 << 53) - 1  # the largest whole number up to which JSON and browsers keep every one


@dataclass(frozen=True)
class GenerationOptions:
    """What a user may choose of an autoregressive decoder; mixed into the options of a family."""

    max_new_tokens: int = option(512, "most tokens generated for one stretch or prompt", minimum=1, maximum=MOST_TOKENS)
    min_new_tokens: int = option(0, "the end is not accepted before so many tokens", minimum=0, maximum=MOST_TOKENS)
    temperature: float = option(
        0.0, "0 takes the likeliest token; above it, tokens are drawn", smallest=COLDEST, maximum=HOTTEST
    )
    top_k: int = option(0, "draw among so many likeliest tokens; 0 draws among all", minimum=0, maximum=MOST_TOKENS)
    top_p: float = option(
        1.0, "draw among the likeliest tokens that reach this probability together", above=0.0, maximum=1.0
    )
    repetition_penalty: float = option(
        1.0, "divides the scores of tokens generated before; 1 is off", minimum=0.01, maximum=MOST_PENALTY
    )
    seed: int = option(0, "of the draws", minimum=0, maximum=LARGEST_SEED)


@dataclass(frozen=True)
class WritingOptions(GenerationOptions):
    """What a user may choose of a model that writes text by itself."""

    alternatives: int = option(0, "report so many of the likeliest tokens at each step", minimum=0, maximum=20)


@dataclass(frozen=True)
class Decoding:
    """How to decode, for a runtime: the user's options and what the model says of its own end."""

    stop_ids: tuple[int, ...]
    max_new_tokens: int | np.ndarray = 512  # one number for each row of a batch, or for all
    min_new_tokens: int = 0
    beam_size: int = 1
    length_penalty: float = 1.0  # power of the length that a beam's score is divided by
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    pad_id: int = 0
    alternatives: int = 0  # how many of the likeliest tokens of each step to tell of

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn rather than the likeliest taken."""
        return self.temperature > 0

    @property
    def plain(self) -> bool:
        """Whether every token is the likeliest of the model's own logits: nothing is drawn, penalised or forbidden."""
        likeliest = not self.samples and self.beam_size == 1
        return likeliest and self.repetition_penalty == 1.0 and not self.min_new_tokens


def decoding_of(options: GenerationOptions, stop_ids: tuple[int, ...], **more: int | float | np.ndarray) -> Decoding:
    """The options as a runtime takes them; `more` names fields of `Decoding` that the family decides."""
    chosen: dict[str, int | float | np.ndarray] = {
        "max_new_tokens": options.max_new_tokens,
        "min_new_tokens": options.min_new_tokens,
        "temperature": options.temperature,
        "top_k": options.top_k,
        "top_p": options.top_p,
        "repetition_penalty": options.repetition_penalty,
        "seed": options.seed,
    }
    return Decoding(stop_ids, **{**chosen, **more})  # type: ignore[arg-type]
