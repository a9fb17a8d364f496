"""SenseVoiceSmall: everything that is the same on every runtime.

An encoder with CTC that recognises language, emotion, audio event and words in one pass ("FunAudioLLM", An et al.
2024). Four query frames are put before the features: language, two fixed ones (emotion, event), and text normalisation.
This file opens no weights and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.audio.frontend import FrontendConfig
from workbench.core.errors import BadInput
from workbench.core.options import TimedOptions, option
from workbench.core.phrases import enumerated
from workbench.decoding.confidence import finite_or_none
from workbench.decoding.ctc import CtcToken
from workbench.decoding.ctc_options import CtcHeadOptions
from workbench.families.funasr import FunasrCheckpoint, is_funasr_directory, read_checkpoint
from workbench.families.sanm.encoder import SanmConfig, config_number, expect, read_sanm_config
from workbench.families.vocabularies.funasr import (
    CONTROL_PIECES,
    WORD_START,
    Vocabulary,
    listed_tokens,
    read_sentencepiece,
)
from workbench.session.values import Token

MODELS = ("SenseVoiceSmall",)
LANGUAGE_QUERIES = {"auto": 0, "zh": 3, "en": 4, "yue": 7, "ja": 11, "ko": 12, "nospeech": 13}
EVENT_EMOTION_QUERIES = (1, 2)
TEXTNORM_QUERIES = {"withitn": 14, "woitn": 15}
QUERIES = 16  # rows of the query embedding
QUERY_FRAMES = 4
PEAK_DELAY = 0.5  # frames by which a CTC peak is late

LANGUAGES = ("zh", "en", "yue", "ja", "ko", "nospeech")
EMOTIONS = ("HAPPY", "SAD", "ANGRY", "NEUTRAL", "FEARFUL", "DISGUSTED", "SURPRISED", "EMO_UNKNOWN")
TEXTNORMS = ("withitn", "woitn")
UNKNOWN_EMOTION = "<|EMO_UNKNOWN|>"


@dataclass(frozen=True)
class SenseVoiceOptions(CtcHeadOptions, TimedOptions):
    """The user's options for SenseVoice."""

    language: str = option("auto", "the language spoken, or auto", tuple(LANGUAGE_QUERIES))
    itn: bool = option(False, "inverse text normalisation: punctuation, and numbers in figures")
    ban_emo_unk: bool = option(False, "always name an emotion, never EMO_UNKNOWN")


@dataclass(frozen=True)
class SenseVoiceModel:
    """A SenseVoice checkpoint without its weights."""

    checkpoint: FunasrCheckpoint
    frontend: FrontendConfig
    cmvn_file: Path | None
    encoder: SanmConfig
    vocabulary: Vocabulary
    blank: int = 0


def is_sensevoice(directory: Path) -> bool:
    """Returns whether this is a SenseVoice checkpoint directory."""
    return is_funasr_directory(directory, MODELS)


def read_sensevoice(directory: Path, weights: Path | None = None) -> SenseVoiceModel:
    """Reads configuration and vocabulary.

    Args:
        weights: the weights' file, if it is outside the directory.

    Raises `BadInput` if they are missing or invalid.
    """
    checkpoint = read_checkpoint(directory, weights)
    if checkpoint.model not in MODELS:
        raise BadInput(f"{checkpoint.described_in} is for model {checkpoint.model!r}; expected SenseVoiceSmall")
    expect(checkpoint.config, "encoder", "SenseVoiceEncoderSmall", directory.name)
    frontend = checkpoint.frontend()
    vocabulary = _read_vocabulary(checkpoint)
    return SenseVoiceModel(
        checkpoint=checkpoint,
        frontend=frontend,
        cmvn_file=checkpoint.file("frontend_conf", "cmvn_file"),
        encoder=read_sanm_config(checkpoint.section("encoder_conf"), frontend.width, norm_eps=1e-5, second_norm=True),
        vocabulary=vocabulary,
        blank=config_number(checkpoint.section("model_conf"), "blank_id", "model_conf", 0, 0, len(vocabulary) - 1),
    )


def sentencepiece_file(checkpoint: FunasrCheckpoint) -> Path | None:
    """Returns the SentencePiece model of the checkpoint; None if it has a plain list of tokens.

    Raises `BadInput` if there are several and the configuration names none of them.
    """
    stated_file = checkpoint.file("tokenizer_conf", "bpemodel")
    files = [stated_file] if stated_file else sorted(checkpoint.directory.glob("*.bpe.model"))
    if len(files) > 1:
        raise BadInput(
            f"checkpoint directory {checkpoint.directory.name} has several SentencePiece models, "
            f"{enumerated([path.name for path in files])}; expected one, or tokenizer_conf.bpemodel that names one"
        )
    return files[0] if files else None


def _read_vocabulary(checkpoint: FunasrCheckpoint) -> Vocabulary:
    model = sentencepiece_file(checkpoint)
    if model is not None:
        return read_sentencepiece(model)
    vocabulary = listed_tokens(checkpoint)
    if vocabulary is None:
        raise BadInput(
            f"checkpoint directory {checkpoint.directory.name} has no vocabulary; expected *.bpe.model or tokens.json"
        )
    return vocabulary


def query_ids(options: SenseVoiceOptions) -> tuple[int, ...]:
    """Returns the rows of the query embedding that are put before the features."""
    textnorm = TEXTNORM_QUERIES["withitn" if options.itn else "woitn"]
    return (LANGUAGE_QUERIES[options.language], *EVENT_EMOTION_QUERIES, textnorm)


def read_tags(pieces: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """Returns the language and the other tags among emitted pieces such as `<|en|>`; the first of each kind."""
    language: str | None = None
    tags: dict[str, str] = {}
    for name in (piece[2:-2] for piece in pieces if is_tag(piece)):
        if name in LANGUAGES:
            language = language or name
        elif name in TEXTNORMS:
            tags.setdefault("itn", name)
        elif name in EMOTIONS:
            tags.setdefault("emotion", name)
        else:
            tags.setdefault("event", name)
    return language, tags


def is_tag(piece: str) -> bool:
    """Returns whether a piece is a tag and not text."""
    return len(piece) > 4 and piece.startswith("<|") and piece.endswith("|>")


def is_text(piece: str) -> bool:
    """Returns whether a piece is text: neither a tag nor a control piece."""
    return not is_tag(piece) and piece not in CONTROL_PIECES


def timed_tokens(
    path: Sequence[CtcToken],
    vocabulary: Vocabulary,
    frames: int,
    frame_seconds: float,
    probabilities: np.ndarray | None = None,
) -> tuple[Token, ...]:
    """Returns the text tokens of a CTC path with their times.

    Args:
        path: over the query frames and the features.
        frames: number of feature frames, without queries.
        frame_seconds: of one feature frame after LFR.
        probabilities: of the path, in each frame [4 + frames]; a token's confidence is the mean over its frames.

    A CTC peak is half a frame late, so the times are moved by that much, as in the original.
    """
    tokens = []
    for token in path:
        piece = vocabulary.pieces[token.id]
        if not is_text(piece):
            continue
        start = max((token.first - QUERY_FRAMES - PEAK_DELAY) * frame_seconds, 0.0)
        end = min(token.end - QUERY_FRAMES - PEAK_DELAY, frames - PEAK_DELAY) * frame_seconds
        confidence = (
            None if probabilities is None else finite_or_none(float(probabilities[token.first : token.end].mean()))
        )
        tokens.append(Token(token.id, piece.replace(WORD_START, " "), start, max(end, start), confidence))
    return tuple(tokens)
