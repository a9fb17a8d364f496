"""SeACo-Paraformer's hotwords: the branch's configuration, and words as token ids, the same on every runtime.

A bias encoder (LSTM) turns each hotword into one vector. A second decoder attends from the acoustic embeddings, and
from the first decoder's hidden states, to these vectors. Where its output is not the token "no hotword", it replaces
the first decoder's output (Shi et al., "SeACo-Paraformer", ICASSP 2024). This file opens no weights and computes
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from workbench.core.errors import BadInput, message_of
from workbench.core.phrases import name_in_folder
from workbench.families.funasr import FunasrCheckpoint
from workbench.families.sanm.decoder import DecoderConfig, read_decoder
from workbench.families.sanm.encoder import config_number, expect
from workbench.families.vocabularies.funasr import Vocabulary
from workbench.formats.text_files import lines_of, read_text

BRANCH = ("bias_encoder.*", "seaco_decoder.*", "hotword_output_layer.*", "lstm_proj.*")  # globs of its tensors
EMBEDDING = "decoder.embed.0.weight"  # the table that the bias encoder reads; a plain Paraformer needs it in training
OUTPUT_LAYER = "hotword_output_layer.weight"  # a checkpoint without it has no branch
UNUSED = ("seaco_decoder.embed.*", "seaco_decoder.output_layer.*")  # of the branch

SEGMENTS = ("tokenizer_conf", "seg_dict_file")  # section and key of the file with the pieces of each word
NO_BIAS = 8377  # the original's default for the id that says "no hotword"
FILTERED = 50  # hotwords that a recording keeps, if there are more; the end of the list is not counted
FILTER_LAYERS = 5  # of the second decoder, in front of the attention that scores hotwords
STACKS = ("seaco_cif", "seaco_decoder")  # stages of the second decoder's passes: over embeddings, over hidden states
FILTER_STACK = "seaco_filter"  # stages of the scores
MAX_HOTWORDS = 5000
MAX_HOTWORD_TOKENS = 100  # tokens

_CHARACTERS = re.compile(r"[a-z']+|\S")  # a run of Latin letters, or any other character

Tensor = TypeVar("Tensor")
Hotwords = tuple[tuple[int, ...], ...]
"""Token ids of each hotword, with the end of the list as the last one; empty without hotwords."""


@dataclass(frozen=True)
class SeacoConfig:
    """The branch's dimensions, and how it reads hotwords."""

    width: int
    bidirectional: bool
    decoder: DecoderConfig
    no_bias: int
    start: int  # the id that ends a list of hotwords
    segment_text: str | None  # of the file with the pieces of each word
    segment_problem: str | None = None  # why that file cannot be read, which only hotwords need

    @cached_property
    def segments(self) -> Mapping[str, tuple[str, ...]] | None:
        """The pieces of each word that the file lists; None without a file: then words are pieces or characters.

        Raises `BadInput` if the checkpoint names a file that is missing or damaged.
        """
        if self.segment_problem is not None:
            raise BadInput(
                f"hotwords need the file of word pieces: {self.segment_problem}; copy it from where the checkpoint "
                "was published, or leave out the hotwords"
            )
        if self.segment_text is None:
            return None
        lines = (line.split() for line in lines_of(self.segment_text))
        return {line[0]: tuple(line[1:]) for line in lines if line}

    def tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the tensors of the branch, of those of a checkpoint."""
        names = (*BRANCH, EMBEDDING)
        return {name: value for name, value in tensors.items() if any(fnmatchcase(name, glob) for glob in names)}

    @property
    def max_hotwords(self) -> int:
        """The largest number of hotwords."""
        return MAX_HOTWORDS if self.decoder.att_layer_num > FILTER_LAYERS else FILTERED - 1

    def ids(self, hotwords: Sequence[str], vocabulary: Vocabulary) -> Hotwords:
        """Returns the token ids of the hotwords and of the end of the list; empty if there are no hotwords.

        The original writes an unknown piece for a word that the vocabulary cannot spell. Such a word is refused here.
        Raises `BadInput` for it, and for too many or too long hotwords.
        """
        words = [word for word in hotwords if word.strip()]
        if not words:
            return ()
        if len(words) > self.max_hotwords:
            raise BadInput(
                f"hotwords has {len(words):,} words; expected at most {self.max_hotwords:,} for this checkpoint"
            )
        return (*(self._ids_of(word, vocabulary) for word in words), (self.start,))

    def _ids_of(self, hotword: str, vocabulary: Vocabulary) -> tuple[int, ...]:
        pieces = [piece for word in hotword.split() for piece in self._pieces(word, vocabulary)]
        if len(pieces) > MAX_HOTWORD_TOKENS:
            raise BadInput(f"hotword {hotword!r:.60} has {len(pieces)} tokens; expected at most {MAX_HOTWORD_TOKENS}")
        for piece in pieces:
            if piece not in vocabulary.ids:
                raise BadInput(
                    f"hotword {hotword!r:.60} has {piece!r:.20}, which the model's vocabulary does not have; "
                    "leave the hotword out, or spell it otherwise"
                )
        return tuple(vocabulary.ids[piece] for piece in pieces)

    def _pieces(self, word: str, vocabulary: Vocabulary) -> list[str]:
        """Returns the pieces of a word: of the whole word if it is known, else of its runs of letters and characters.

        The file of segments lists words in lower case, as the original looks them up.
        """
        if self.segments is None and word in vocabulary.ids:
            return [word]
        word = word.lower()
        known = word in (vocabulary.ids if self.segments is None else self.segments)
        parts = [word] if known else _CHARACTERS.findall(word)
        return [piece for part in parts for piece in self._spelling(part, vocabulary)]

    def _spelling(self, part: str, vocabulary: Vocabulary) -> Sequence[str]:
        if self.segments is not None and part in self.segments:
            return self.segments[part]
        return [part] if part in vocabulary.ids else part


def read_seaco(checkpoint: FunasrCheckpoint, width: int, vocabulary: int, start: int) -> SeacoConfig | None:
    """Returns the branch's configuration; None if the configuration has no branch that can be computed.

    Args:
        width: of the encoder.
        vocabulary: the number of tokens.
        start: the id of the start symbol.

    Raises `BadInput` for values that are unsupported or do not fit.
    """
    values = {**checkpoint.section("model_conf"), **checkpoint.config}
    if values.get("seaco_decoder") is None or values.get("bias_encoder_type", "lstm") != "lstm":
        return None
    where = "model_conf"
    for key, value in (("seaco_decoder", "ParaformerSANMDecoder"), ("inner_dim", width)):
        expect(values, key, value, where)
    section = values.get("seaco_decoder_conf")
    if not isinstance(section, Mapping):
        raise BadInput(f"seaco_decoder_conf in config.yaml is {type(section).__name__}; expected a mapping")
    segment_text, segment_problem = _segments(checkpoint)
    return SeacoConfig(
        width=width,
        bidirectional=bool(values.get("bias_encoder_bid", False)),
        decoder=read_decoder(section, width, "seaco_decoder_conf", output_layer=False),
        no_bias=config_number(values, "NO_BIAS", where, min(NO_BIAS, vocabulary - 1), 0, vocabulary - 1),
        start=start,
        segment_text=segment_text,
        segment_problem=segment_problem,
    )


def segment_file(checkpoint: FunasrCheckpoint) -> Path | None:
    """Returns the file with the pieces of each word; None if the checkpoint names none, or a missing one."""
    try:
        return checkpoint.file(*SEGMENTS)
    except BadInput:
        return None


def _segments(checkpoint: FunasrCheckpoint) -> tuple[str | None, str | None]:
    """Returns the text of that file, or None; and why it cannot be read, or None."""
    try:
        file = checkpoint.file(*SEGMENTS)
    except BadInput as error:
        return None, str(error)
    if file is None:
        return None, None
    try:
        return read_text(file), None
    except (BadInput, OSError) as error:
        return None, f"{name_in_folder(file)} cannot be read: {message_of(error)}"
