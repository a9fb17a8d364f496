"""SpeechLM (ESPnet's Bagpiper): everything that is the same on every runtime.

A Qwen3 language model writes text and parallel streams of codec tokens, an audio tower gives it what the user says, and
Xcodec turns its tokens into speech. This file reads both forms of a checkpoint, opens no weights and computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from workbench.core.errors import BadInput
from workbench.core.options import MAX_TOKENS, ConversingOptions, option
from workbench.decoding.generation import MAX_SEED, MAX_TEMPERATURE, MIN_TEMPERATURE
from workbench.families.language.directory import LanguageConfig
from workbench.families.speechlm.directory import (
    TEXT_TOKENIZER,
    config_file,
    is_directory_form,
    read_defaults,
    read_directory_tower,
    read_inference,
    read_language_settings,
    read_layout,
    weight_files,
)
from workbench.families.speechlm.parts import (
    CodecParts,
    SpeechDefaults,
    Tower,
    how_to_fetch,
    read_codec,
    window_notes,
)
from workbench.families.speechlm.release import read_release, training_yamls, weights_file
from workbench.families.speechlm.tokenizer import SpeechTokenizer, read_global_tokenizer, read_text_tokenizer
from workbench.formats.json_files import read_json_file
from workbench.speech.layout import SpeechLayout
from workbench.speech.plan import AnswerPlan

MAX_CFG = 20.0  # published checkpoints use 3
TOWER_PREFIX = "multimodal_io_dict.continuous_audio.model.audio_tower."
CODEC_PREFIX = "multimodal_io_dict.discrete_audio.codec_model."
CODEC_ON_TORCH = "workbench.runtimes.pytorch.speechlm:open_codec"  # for every runtime that brings PyTorch
Value = TypeVar("Value")
UNUSED_TENSORS = ("vocab_weight",)  # the weights of the loss


@dataclass(frozen=True)
class SpeechLmOptions(ConversingOptions):
    """The user's options for an answer of a SpeechLM. The checkpoint has the defaults of options that are not set.

    In an answer of text and audio, the text comes first.
    """

    max_text_tokens: int | None = option(None, "largest number of tokens in the text", minimum=1, maximum=MAX_TOKENS)
    min_audio_rows: int | None = option(
        None,
        "the audio does not end before this many rows (one is a codec frame, 20 ms)",
        minimum=0,
        maximum=MAX_TOKENS,
    )
    max_audio_rows: int | None = option(
        None, "most rows of the audio (one is a codec frame, 20 ms)", minimum=1, maximum=MAX_TOKENS
    )
    temperature: float | None = option(
        None,
        "of text and audio; 0 takes the likeliest tokens, above it they are drawn",
        smallest=MIN_TEMPERATURE,
        maximum=MAX_TEMPERATURE,
    )
    text_temperature: float | None = option(
        None, "of the text alone; replaces temperature", smallest=MIN_TEMPERATURE, maximum=MAX_TEMPERATURE
    )
    audio_temperature: float | None = option(
        None, "of the audio alone; replaces temperature", smallest=MIN_TEMPERATURE, maximum=MAX_TEMPERATURE
    )
    text_top_k: int | None = option(
        None, "draw the text among this many likeliest tokens; 0 draws among all", minimum=0, maximum=MAX_TOKENS
    )
    audio_top_k: int | None = option(
        None,
        "draw each codec stream among this many likeliest tokens; 0 draws among all",
        minimum=0,
        maximum=MAX_TOKENS,
    )
    cfg: float | None = option(
        None,
        "classifier-free guidance of the audio; 1 is off, and above it takes twice the time",
        minimum=1.0,
        maximum=MAX_CFG,
    )
    seed: int = option(0, "seed of the sampling", minimum=0, maximum=MAX_SEED)
    max_tokens: int | None = option(
        None,
        "most tokens and rows of the whole answer, with the ids that open and close its parts",
        minimum=1,
        maximum=MAX_TOKENS,
    )
    probabilities: bool = option(False, "report the probability of each token chosen")


@dataclass(frozen=True)
class SpeechLmModel:
    """A SpeechLM checkpoint without its weights."""

    directory: Path
    weights: tuple[Path, ...]  # safetensors files, or ESPnet's file of tensors
    layout: SpeechLayout
    tokenizer: SpeechTokenizer
    settings: Mapping[str, Any]  # of the language model, by the names of transformers' Qwen3Config
    tower: Tower | None  # None if it does not hear
    codec: CodecParts | None  # None if it does not speak
    defaults: SpeechDefaults
    folders: Mapping[str, Path]  # with configurations and tokenizer, by the names that the checkpoint has for them

    @property
    def audio_notes(self) -> tuple[str, ...]:
        """What the user should know about how recordings are heard."""
        return window_notes(self.tower) if self.tower else ()

    @property
    def hidden_size(self) -> int:
        """The width of the language model."""
        return int(self.settings["hidden_size"])

    @property
    def context(self) -> int:
        """The most positions of a sequence."""
        return int(self.settings["max_position_embeddings"])

    @property
    def language(self) -> LanguageConfig:
        """The language model, as runtimes load one."""
        return LanguageConfig(
            directory=self.directory,
            model_type="qwen3",
            hidden_size=self.hidden_size,
            layers=int(self.settings["num_hidden_layers"]),
            vocabulary=self.layout.vocabulary,
            context=self.context,
            stop_ids=(self.layout.eos, self.layout.eot),
            pad_id=self.layout.pad,
        )


def is_speechlm(directory: Path) -> bool:
    """Returns whether this is a SpeechLM checkpoint directory of either form. Never raises an error."""
    return is_directory_form(directory) or any(training_yamls(directory))


def read_speechlm(directory: Path, weights: Path | None = None) -> SpeechLmModel:
    """Reads configuration and tokenizer of either form.

    Args:
        weights: the weights' file, if it is outside the directory.

    Raises `BadInput` if they are missing or inconsistent, `Unavailable` if they name a repository that is not on this
    machine.
    """
    return (_read_directory if is_directory_form(directory) else _read_release)(directory, weights)


def answer_plan(model: SpeechLmModel, options: SpeechLmOptions) -> AnswerPlan:
    """Returns how to generate an answer: the user's options, and the checkpoint's own where the user leaves them open.

    If a limit of the user contradicts the checkpoint's other limit, the checkpoint's limit moves. Raises `BadInput` for
    the user's limits if they contradict each other, and for audio if the checkpoint does not speak.
    """
    defaults, modalities = model.defaults, options.modalities
    if model.codec is None:
        if modalities in ("audio", "text_audio"):
            raise BadInput(
                f"modalities is {modalities}, and {model.directory.name} names no codec, so it does not speak; "
                "expected text or auto"
            )
        modalities = "text"
    text = _first(options.text_temperature, options.temperature, defaults.text_temperature)
    audio = _first(options.audio_temperature, options.temperature, defaults.audio_temperature)
    max_text = _first(options.max_text_tokens, defaults.max_text_tokens)
    min_rows, max_rows = options.min_audio_rows, options.max_audio_rows
    min_rows = min(defaults.min_audio_rows, _first(max_rows, defaults.max_audio_rows)) if min_rows is None else min_rows
    max_rows = max(defaults.max_audio_rows, min_rows) if max_rows is None else max_rows
    return AnswerPlan(
        modalities=modalities,
        max_text_tokens=max_text,
        min_text_tokens=min(defaults.min_text_tokens, max_text),
        min_audio_rows=min_rows,
        max_audio_rows=max_rows,
        text_temperature=text,
        audio_temperature=audio,
        text_top_k=_first(options.text_top_k, defaults.text_top_k),
        audio_top_k=_first(options.audio_top_k, defaults.audio_top_k),
        cfg=_first(options.cfg, defaults.cfg),
        seed=options.seed,
        max_tokens=options.max_tokens,
    )


def _first(*values: Value | None) -> Value:
    """Returns the first value that is set; the last one is."""
    return next(value for value in values if value is not None)


def _read_directory(directory: Path, weights: Path | None) -> SpeechLmModel:
    file = config_file(directory)
    config, where = read_json_file(file), f"{directory.name}/{file.name}"
    layout = read_layout(config, where)
    read_tokenizer = read_text_tokenizer if config.get("tokenizer") == TEXT_TOKENIZER else read_global_tokenizer
    tower = read_directory_tower(directory, config, where)
    codec = None
    name = config.get("xcodec_hf_model_tag")
    if isinstance(name, str) and name:
        codec = _fitting(read_codec(directory, name, where), layout, where)
    return SpeechLmModel(
        directory=directory,
        weights=(weights,) if weights else weight_files(directory),
        layout=layout,
        tokenizer=read_tokenizer(directory, layout),
        settings=read_language_settings(config, layout, where),
        tower=tower,
        codec=codec,
        defaults=read_defaults(directory, config, where),
        folders={codec.name: codec.directory} if codec and codec.directory else {},
    )


def _read_release(directory: Path, weights: Path | None) -> SpeechLmModel:
    release = read_release(directory)
    return SpeechLmModel(
        directory=directory,
        weights=(weights or weights_file(directory),),
        layout=release.layout,
        tokenizer=read_text_tokenizer(release.tokenizer, release.layout),
        settings=release.settings,
        tower=release.tower,
        codec=release.codec,
        defaults=read_inference(directory, SpeechDefaults()),
        folders=release.folders,
    )


def _fitting(codec: CodecParts, layout: SpeechLayout, where: str) -> CodecParts:
    """Returns the codec if the vocabulary is one of its codebooks; raises `BadInput` otherwise."""
    missing = f"; its folder is missing, so this is Xcodec's default: {how_to_fetch(codec.name)}"
    hint = "" if codec.directory else missing
    if codec.codebooks < layout.streams:
        raise BadInput(
            f"{where} has {layout.streams} streams and the codec {codec.name} {codec.codebooks} codebooks; "
            f"expected at least as many: the number of streams differs{hint}"
        )
    if codec.codes != layout.codes:
        raise BadInput(
            f"{where} has {layout.codes} codes in a stream and the codec {codec.name} {codec.codes}; expected the "
            f"same{hint}"
        )
    return codec
