"""How one answer is generated: its parts, its limits, and the choice of its tokens."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.core.errors import BadInput
from workbench.core.options import MODALITIES


@dataclass(frozen=True)
class AnswerPlan:
    """The settings of one answer. The limits do not count the closing id of a segment."""

    modalities: str = "auto"  # auto: the model chooses
    max_text_tokens: int = 2048
    min_text_tokens: int = 1  # the text may end after this many tokens
    min_audio_rows: int = 1
    max_audio_rows: int = 2048
    text_temperature: float = 0.0  # 0 takes the likeliest token
    audio_temperature: float = 0.0  # the same for all streams
    text_top_k: int = 0  # 0 draws among all
    audio_top_k: int = 0
    cfg: float = 1.0  # classifier-free guidance of audio; 1 is off
    seed: int = 0
    max_tokens: int | None = None  # positions of the whole answer, with markers and closing ids; None for any number

    def __post_init__(self) -> None:
        if self.modalities not in MODALITIES:
            raise BadInput(f"modalities is {self.modalities!r:.80}; expected one of {', '.join(MODALITIES)}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise BadInput(f"max_tokens is {self.max_tokens}; expected at least 1")
        if not self.cfg >= 1:
            raise BadInput(f"cfg is {self.cfg:g}; expected at least 1, which is without guidance")
        for quantity, minimum, maximum in (
            ("text_tokens", self.min_text_tokens, self.max_text_tokens),
            ("audio_rows", self.min_audio_rows, self.max_audio_rows),
        ):
            if maximum < 1 or minimum < 0:
                raise BadInput(f"max_{quantity} is {maximum} and min_{quantity} {minimum}; expected at least 1 and 0")
            if minimum > maximum:
                raise BadInput(f"min_{quantity} is {minimum} and max_{quantity} {maximum}; expected no more than that")

    @property
    def guided(self) -> bool:
        """Whether audio needs the null branch of classifier-free guidance."""
        return self.cfg != 1
