"""Paraformer: everything that is the same on every runtime.

A non-autoregressive recogniser: encoder, CIF predictor, and a decoder that emits all tokens at once (Gao et al.,
"Paraformer", Interspeech 2022). It reads plain, BiCif and SeACo checkpoints; `seaco` has SeACo's hotwords. This file
opens no weights and computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workbench.audio.frontend import FrontendConfig
from workbench.core.errors import BadInput, NotFinite
from workbench.core.options import TimedOptions, option
from workbench.decoding.cif import peaks
from workbench.families.funasr import FunasrCheckpoint, is_funasr_directory, read_checkpoint
from workbench.families.sanm.decoder import UNCHANGED_LAYERS, DecoderConfig, read_decoder
from workbench.families.sanm.encoder import SanmConfig, config_number, expect, read_sanm_config
from workbench.families.sanm.seaco import BRANCH, OUTPUT_LAYER, Hotwords, SeacoConfig, read_seaco
from workbench.families.vocabularies.funasr import Vocabulary, listed_tokens
from workbench.session.values import Token

SEACO = "SeacoParaformer"
MODELS = ("Paraformer", "BiCifParaformer", SEACO)
PREDICTORS = ("CifPredictorV2", "CifPredictorV3")
NORM_EPS = 1e-12  # also of the encoder's layer norms
MARKERS = ("<blank>", "<s>", "</s>")  # not spoken
START = MARKERS[1]
MARKER_KEYS = ("blank_id", "sos", "eos")  # of model_conf: the ids of the markers, by default 0, 1 and 2
HIDDEN_PIECES = (*MARKERS, "<unk>", "<OOV>")  # not written; the unknown pieces were spoken and took time
CONTINUES = "@@"  # ends a piece that the next one continues
TRAINING_ONLY = ("decoder.embed.*", "ctc.*")

# Constants of the timestamps, in units of the (possibly finer) alpha frames, as in the original.
PEAK = 1.0 - 1e-4
PEAK_SHIFT = -1.5
EDGE_FRAMES = 5  # shorter silence at an edge belongs to the token
MAX_TOKEN_FRAMES = 12


@dataclass(frozen=True)
class ParaformerOptions(TimedOptions):
    """The user's options for Paraformer."""

    cif_residual: bool = option(
        False,
        "add the encoder's output inside the CIF predictor, as FunASR's C++ runtime does; the original does not",
    )


@dataclass(frozen=True)
class SeacoOptions(ParaformerOptions):
    """The user's options for a SeACo checkpoint."""

    hotwords: tuple[str, ...] = option((), "words that are likely to be said, such as names")


def options_of(directory: Path) -> type[ParaformerOptions]:
    """Returns the class of the options of a checkpoint directory."""
    return SeacoOptions if is_funasr_directory(directory, (SEACO,)) else ParaformerOptions


@dataclass(frozen=True)
class CifConfig:
    """The predictor's dimensions and constants; those named `fine_*` belong to V3's second head."""

    width: int
    left_order: int
    right_order: int
    tail_threshold: float
    smooth_factor: float
    noise_threshold: float
    upsample: int = 0  # 0: the predictor has no second head
    blstm: bool = False
    upsample_after_conv: bool = True
    fine_smooth_factor: float = 1.0
    fine_noise_threshold: float = 0.0


def token_count(total: float) -> int:
    """Returns how many tokens fire from the sum of all frames' weights.

    Raises `NotFinite` for a sum that is not a number: then some weights of the checkpoint are so large that its encoder
    overflows.
    """
    if not math.isfinite(total):
        raise NotFinite(
            f"Paraformer's predictor finds {total} tokens: values overflow in the network; expected a checkpoint with "
            "weights of a usual size, so this one may be damaged"
        )
    return int(total)


@dataclass(frozen=True)
class ParaformerModel:
    """A Paraformer checkpoint without its weights."""

    checkpoint: FunasrCheckpoint
    frontend: FrontendConfig
    cmvn_file: Path | None
    encoder: SanmConfig
    predictor: CifConfig
    decoder: DecoderConfig
    vocabulary: Vocabulary
    seaco: SeacoConfig | None  # of the hotword branch; None if the configuration has none
    unused_tensors: tuple[str, ...]

    def with_branch(self, tensors: Container[str]) -> ParaformerModel:
        """Returns the model with its hotword branch if the tensors have one, else without it.

        GGUF files in FunASR's layout have no branch. Files that an older version of this project wrote have none
        either.
        """
        return self if self.seaco is not None and OUTPUT_LAYER in tensors else replace(self, seaco=None)

    def hotword_ids(self, hotwords: Sequence[str]) -> Hotwords:
        """Returns the token ids of the hotwords, see `SeacoConfig.ids`.

        Raises `BadInput` for hotwords that the model cannot take, and for any if it has no hotword branch.
        """
        if self.seaco is not None:
            return self.seaco.ids(hotwords, self.vocabulary)
        if not any(word.strip() for word in hotwords):
            return ()
        raise BadInput(
            "option hotwords is set, and these weights have no hotword branch that can be computed; an older GGUF file "
            "gets it by a new conversion"
        )


def is_paraformer(directory: Path) -> bool:
    """Returns whether this is a Paraformer checkpoint directory."""
    return is_funasr_directory(directory, MODELS)


def read_paraformer(directory: Path, weights: Path | None = None) -> ParaformerModel:
    """Reads configuration and vocabulary.

    Args:
        weights: the weights' file, if it is outside the directory.

    Raises `BadInput` if they are missing, unsupported or invalid.
    """
    checkpoint = read_checkpoint(directory, weights)
    if checkpoint.model not in MODELS:
        raise BadInput(
            f"{checkpoint.described_in} is for model {checkpoint.model!r}; expected one of {', '.join(MODELS)}"
        )
    for key, value in (("encoder", "SANMEncoder"), ("decoder", "ParaformerSANMDecoder")):
        expect(checkpoint.config, key, value, directory.name)
    vocabulary = listed_tokens(checkpoint)
    if vocabulary is None:
        raise BadInput(f"checkpoint directory {directory.name} has no vocabulary; expected tokens.json")
    frontend = checkpoint.frontend()
    encoder = _read_encoder(checkpoint.section("encoder_conf"), frontend.width)
    vocabulary = _with_markers(vocabulary, checkpoint.section("model_conf"))
    seaco = None
    if checkpoint.model == SEACO:
        seaco = read_seaco(checkpoint, encoder.output_size, len(vocabulary), vocabulary.ids[START])
    return ParaformerModel(
        checkpoint=checkpoint,
        frontend=frontend,
        cmvn_file=checkpoint.file("frontend_conf", "cmvn_file"),
        encoder=encoder,
        predictor=_read_predictor(checkpoint, encoder.output_size),
        decoder=read_decoder(
            checkpoint.section("decoder_conf"), encoder.output_size, "decoder_conf", output_layer=True
        ),
        vocabulary=vocabulary,
        seaco=seaco,
        unused_tensors=TRAINING_ONLY + ((*BRANCH, "bias_embed.*") if checkpoint.model == SEACO else ()),
    )


def _with_markers(vocabulary: Vocabulary, section: Mapping[str, Any]) -> Vocabulary:
    """Returns the vocabulary with the usual names of the markers, which the original knows by their ids."""
    pieces, last = list(vocabulary.pieces), len(vocabulary) - 1
    for default, (key, marker) in enumerate(zip(MARKER_KEYS, MARKERS, strict=True)):
        unset = section.get(key, default) is None  # the original then takes the last id
        number = last if unset else config_number(section, key, "model_conf", min(default, last), 0, last)
        pieces[number] = marker
    return Vocabulary(pieces, vocabulary.source)


def _read_encoder(section: Mapping[str, Any], width: int) -> SanmConfig:
    where = "encoder_conf"
    if "input_layer" not in section:
        raise BadInput(f"{where}.input_layer in config.yaml is missing, which means 'conv2d'; only 'pe' is supported")
    for key, value in {**UNCHANGED_LAYERS, "positionwise_layer_type": "linear"}.items():
        expect(section, key, value, where)
    return read_sanm_config(section, width, NORM_EPS, where)


def _read_predictor(checkpoint: FunasrCheckpoint, width: int) -> CifConfig:
    name = checkpoint.config.get("predictor")
    if name not in PREDICTORS:
        raise BadInput(f"predictor in config.yaml is {name!r}; supported are {' and '.join(PREDICTORS)}")
    section, where = checkpoint.section("predictor_conf"), "predictor_conf"
    expect(section, "idim", width, where)
    expect(section, "threshold", 1.0, where)
    fine: dict[str, Any] = {}
    if name == "CifPredictorV3":
        kind = section.get("upsample_type", "cnn")
        if kind not in ("cnn", "cnn_blstm"):
            raise BadInput(f"{where}.upsample_type in config.yaml is {kind!r}; supported are cnn and cnn_blstm")
        fine = {
            "upsample": config_number(section, "upsample_times", where, 5),
            "blstm": kind == "cnn_blstm",
            "upsample_after_conv": bool(section.get("use_cif1_cnn", True)),
            "fine_smooth_factor": _number(section, "smooth_factor2", 1.0),
            "fine_noise_threshold": _number(section, "noise_threshold2", 0.0),
        }
    return CifConfig(
        width=width,
        left_order=config_number(section, "l_order", where, minimum=0),
        right_order=config_number(section, "r_order", where, minimum=0),
        tail_threshold=_number(section, "tail_threshold", 0.0, 1e-3),  # without a tail the original counts differently
        smooth_factor=_number(section, "smooth_factor", 1.0),
        noise_threshold=_number(section, "noise_threshold", 0.0),
        **fine,
    )


def _number(section: Mapping[str, Any], key: str, default: float, minimum: float = 0.0) -> float:
    value = section.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not minimum <= value <= 10:
        raise BadInput(f"predictor_conf.{key} in config.yaml is {value!r}; expected a number from {minimum:g} to 10")
    return float(value)


def join_pieces(pieces: Sequence[str]) -> str:
    """Returns the text of output pieces, as the original's `sentence_postprocess` writes it.

    Latin words are separated by spaces. `@@` continues a word (also across Chinese characters, which are then written
    first). Chinese characters and figures are written without spaces. Consecutive single Latin letters become one
    abbreviation in capitals. An unfinished word is written, while the original drops it.
    """
    words: list[str] = []  # words and the spaces between them
    unfinished_word = ""
    spaced = False
    for piece in pieces:
        if piece in HIDDEN_PIECES:
            continue
        if CONTINUES in piece and not _is_chinese(piece):
            unfinished_word += piece.replace(CONTINUES, "")
            spaced = False
        elif _is_word(piece):
            words += [unfinished_word + piece, " "]
            unfinished_word = ""
            spaced = True
        else:
            if spaced and _is_chinese(piece):
                words.pop()
            words.append(piece)
            spaced = False
    return "".join([*_abbreviate(words), unfinished_word]).strip()


def _abbreviate(words: Sequence[str]) -> list[str]:
    """Returns the words and spaces, with each run of single Latin letters joined to one word."""
    joined: list[str] = []
    run: list[str] = []  # alternating letters and spaces
    for word in [*words, ""]:
        if (word == " " and len(run) % 2 == 1) or (_is_letter(word) and len(run) % 2 == 0):
            run.append(word)
            continue
        joined += _abbreviation(run)
        run = [word] if _is_letter(word) else []
        if not run:
            joined.append(word)
    return joined


def _abbreviation(run: Sequence[str]) -> list[str]:
    letters = run[::2]
    return ["".join(letters).upper(), *run[2 * len(letters) - 1 :]] if len(letters) > 1 else list(run)


def _is_letter(word: str) -> bool:
    return len(word) == 1 and word.isascii() and word.isalpha()


def _is_chinese(piece: str) -> bool:
    """Returns whether a piece has only Chinese characters and figures, which are written without spaces; @ counts
    too.
    """
    return piece != "" and all("\u4e00" <= letter <= "\u9fff" or letter in "0123456789@" for letter in piece)


def _is_word(piece: str) -> bool:
    return piece != "" and all((letter.isalpha() or letter == "'") and not _is_chinese(letter) for letter in piece)


def peak_times(
    values: Sequence[float], tokens: int, rate: float, fires_at_start: bool
) -> list[tuple[float, float]] | None:
    """Returns start and end in seconds of each token, from the integrator's value at each alpha frame.

    If an edge marks the start of a token (V3's second head is trained so), the token lasts to the next edge, at most 12
    frames. The last token reaches half into the following silence, or to the end if that is near, unless the limit cuts
    it. If an edge marks the end of a token (the weights that fire the embeddings), the token is the range since the
    previous edge, at most 12 frames.

    Args:
        values: from `cif.peaks`; a value of 1 is an edge. There must be tokens + 1 edges: the end symbol has one.
        tokens: the number of tokens, including spoken ones that are not written.
        rate: seconds per alpha frame.
        fires_at_start: whether edges mark starts or ends.

    Returns None for another number of edges: the caller then rescales the weights and tries again.
    """
    edges = [frame + PEAK_SHIFT for frame, value in enumerate(values) if value >= PEAK]
    if tokens < 1 or len(edges) != tokens + 1:
        return None
    if fires_at_start:
        times = [(start, min(end, start + MAX_TOKEN_FRAMES)) for start, end in pairwise(edges)]
        if times[-1][1] == edges[-1]:
            frames = len(values)
            is_far = frames - edges[-1] > EDGE_FRAMES
            times[-1] = (times[-1][0], (frames + edges[-1]) / 2 if is_far else float(frames))
    else:
        times = [(max(start, end - MAX_TOKEN_FRAMES), end) for start, end in pairwise([0.0, *edges[:-1]])]
    return [(max(start, 0.0) * rate, max(end, 0.0) * rate) for start, end in times]


class Firing(NamedTuple):
    """How CIF weights divide a recording among tokens."""

    weights: np.ndarray  # [frames], as used: scaled if the given ones had another number of edges
    values: np.ndarray  # [frames], of the integrator, before it is reset where it fires
    times: list[tuple[float, float]] | None  # start and end of each token in seconds; None if no number of edges fits


def token_times(alphas: np.ndarray, tokens: int, rate: float, fine: bool) -> Firing:
    """Returns the token times by CIF weights [frames]; rescales the weights if their edges do not fit.

    The original code swaps weights and peaks in the call of this function for a plain Paraformer, and uses the ends of
    tokens as their starts; its times are at least one token late. For BiCif models, the original gives the same times
    as this function.

    Args:
        alphas: the finest weights of the model.
        tokens: the number of tokens that are text.
        rate: seconds per weight.
        fine: whether the weights are of the second head of a BiCif model.
    """
    values = peaks(alphas, PEAK if fine else 1.0)  # of a plain model, 1 where CIF fired
    times = peak_times(values.tolist(), tokens, rate, fine)
    if times is None:
        alphas = alphas * ((tokens + 1) / alphas.sum())
        values = peaks(alphas, PEAK)
        times = peak_times(values.tolist(), tokens, rate, fine)
    return Firing(alphas, values, times)


def timed_tokens(
    ids: Sequence[int],
    vocabulary: Vocabulary,
    times: Sequence[tuple[float, float]] | None,
    confidences: Sequence[float | None] | None = None,
) -> tuple[Token, ...]:
    """Returns the tokens that are written, with times and probabilities if there are any: one for each of the ids."""
    spans: Sequence[tuple[float | None, float | None]] = [(None, None)] * len(ids) if times is None else times
    known_confidences: Sequence[float | None] = [None] * len(ids) if confidences is None else confidences
    pieces = [vocabulary.pieces[number] for number in ids]
    return tuple(
        Token(number, piece, *span, confidence)
        for number, piece, span, confidence in zip(ids, pieces, spans, known_confidences, strict=True)
        if piece not in HIDDEN_PIECES
    )
