"""The tokenizer of a SpeechLM checkpoint: text to ids of the whole vocabulary and back.

A directory in Hugging Face's form has a tokenizer with the ids of the whole vocabulary. ESPnet's release names the
tokenizer of its text model, whose ids begin at 0; ESPnet adds the begin of the text interval.

ESPnet leaves the text model's id 0 (`!` of Qwen) as it is, so in its prompts it becomes `<|pad|>`. Here it becomes the
first id of the text interval in both forms, as in the directory's own tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.families.language.directory import LanguageTokenizer
from workbench.speech.layout import SPECIAL, SpeechLayout


@dataclass(frozen=True)
class SpeechTokenizer:
    """Turns text into global ids and back. Text never becomes special tokens, whatever it contains."""

    language: LanguageTokenizer
    layout: SpeechLayout
    offset: int  # of the tokenizer's ids in the vocabulary
    where: str  # the tokenizer's folder, for messages

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, all of the text interval; raises `BadInput` if the tokenizer has others."""
        ids = [number + self.offset for number in self.language.encode_plain(text)]
        if any(not self.layout.text_first <= number < self.layout.text_end for number in ids):
            raise BadInput(
                f"the tokenizer in {self.where} gives text ids outside {self.layout.text_first} to "
                f"{self.layout.text_end - 1}, the text interval of the checkpoint"
            )
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of global ids; others than those of the text interval are left out."""
        return self.language.decode(self._text_model_ids(ids))

    def piece(self, number: int) -> str:
        """Returns one token as text for display: special tokens by name, codec tokens as `stream:code`."""
        layout = self.layout
        if layout.codec_first <= number < layout.codec_end:
            stream, code = divmod(number - layout.codec_first, layout.layer_size)
            return f"{stream}:{code - 1}" if code else f"{stream}:pad"
        text_ids = self._text_model_ids([number])
        if text_ids:
            return self.language.piece(text_ids[0])
        return next((f"<|{name}|>" for name in SPECIAL if getattr(layout, name) == number), f"<|{number}|>")

    def _text_model_ids(self, ids: Iterable[int]) -> list[int]:
        return [number - self.offset for number in ids if self.layout.text_first <= number < self.layout.text_end]


def read_global_tokenizer(directory: Path, layout: SpeechLayout) -> SpeechTokenizer:
    """Reads the tokenizer of a directory in Hugging Face's form; raises `BadInput` if its ids are not the layout's."""
    language = LanguageTokenizer.read_fast(directory)
    for name in SPECIAL:
        expected, number = getattr(layout, name), language.id_of(f"<|{name}|>")
        if number != expected:
            state = "is missing" if number is None else f"is id {number}"
            raise BadInput(
                f"<|{name}|> {state} in the tokenizer of {directory.name} and id {expected} in its config.json; "
                "expected the same"
            )
    highest = language.highest_id
    if highest >= layout.vocabulary:
        raise BadInput(
            f"the tokenizer of {directory.name} has ids up to {highest}; its config.json has room for "
            f"{layout.vocabulary}"
        )
    return _checked(SpeechTokenizer(language, layout, 0, directory.name))


def read_text_tokenizer(directory: Path, layout: SpeechLayout) -> SpeechTokenizer:
    """Reads the tokenizer of the text model alone; raises `BadInput` if it does not fit into the text interval."""
    # transformers' choice among its tokenizers, which `tokenizer.json` makes needless, imports torch.
    has_fast_tokenizer = (directory / "tokenizer.json").is_file()
    language = LanguageTokenizer.read_fast(directory) if has_fast_tokenizer else LanguageTokenizer.read(directory)
    room, highest = layout.text_end - layout.text_first, language.highest_id
    if highest >= room:
        raise BadInput(
            f"the tokenizer in {directory.name} has ids up to {highest}; the text interval has room for {room}"
        )
    return _checked(SpeechTokenizer(language, layout, layout.text_first, directory.name))


def _checked(tokenizer: SpeechTokenizer) -> SpeechTokenizer:
    tokenizer.encode("one two three 1 2 3")
    return tokenizer
