"""FireRedASR-LLM: everything that is the same on every runtime.

A Conformer encoder and an adapter turn speech into embeddings in the prompt of a Qwen2 language model, which writes the
transcript ("FireRedASR", Xu et al. 2025). FireRedASR2-LLM has the same structure. The dimensions are in torch files, so
a runtime reads those and passes plain mappings to this file: it opens no weights and computes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.audio.constants import NUM_MELS, SAMPLE_RATE
from workbench.audio.frontend import FrontendConfig
from workbench.core.config_values import whole_number
from workbench.core.errors import BadInput
from workbench.core.options import MAX_BATCH_SIZE, MAX_TOKENS, ListeningOptions, option
from workbench.decoding.generation import MAX_BEAMS, MAX_PENALTY, GenerationOptions
from workbench.families.language.directory import (
    AUDIO,
    TURN_END,
    VLLM_FORMAT,
    VLLM_SECTION,
    LanguageConfig,
    LanguageTokenizer,
    is_language_directory,
    read_language_config,
)
from workbench.families.sanm.encoder import MAX_BLOCKS, MAX_UNITS
from workbench.families.speech_llm.conformer import SUBSAMPLING, ConformerConfig, encoder_frames
from workbench.families.speech_llm.instruction import DEFAULT_INSTRUCTION, Instruction
from workbench.formats.json_files import read_json_file
from workbench.system.folders import is_file

WEIGHTS, ENCODER_WEIGHTS, CMVN = "model.pth.tar", "asr_encoder.pth.tar", "cmvn.ark"
FILES = (WEIGHTS, ENCODER_WEIGHTS, CMVN)
LANGUAGE_DIRECTORY = "Qwen2-7B-Instruct"  # the name that the original uses
SPEECH = "<speech>"
PAD = "<|endoftext|>"
TASK = "请转写音频为文字"
PROMPT = f"<|im_start|>user\n{SPEECH}{TASK}{TURN_END}\n<|im_start|>assistant\n"
MAX_SECONDS = 30.0  # of a chunk; the FireRedASR project does not support longer ones
# Power of a length; more would change the score of a hypothesis of two tokens by a factor of over a thousand.
MAX_POWER = 10.0
OTHER_CHANGES = ("use_rslora", "use_dora")  # arguments with which peft changes the weights in another way
LORA_ALPHA = 16.0  # from the original's training; its files do not state it
LENGTH_RULES = ("release", "head")
SERVED_ARGUMENTS = ("arguments", "encoder_arguments")  # of the two torch files, in a directory converted for vLLM
UNUSED_TENSORS = ("decoder.*", "ctc.*")  # of asr_encoder.pth.tar, which may be a whole recogniser
BEAM_SEARCHING = ("pytorch", "gguf")  # vLLM's engine follows one hypothesis


@dataclass(frozen=True)
class FireRedAsrOptions(GenerationOptions, ListeningOptions):
    """The user's options for FireRedASR-LLM."""

    max_segment_seconds: float = option(
        MAX_SECONDS,
        "longest segment in seconds; the project supports at most 30, and the model's card may name less",
        minimum=1.0,
        maximum=MAX_SECONDS,
    )
    max_new_tokens: int = option(
        0,
        "largest number of tokens to generate for one segment of speech; 0: as many as it has embeddings",
        minimum=0,
        maximum=MAX_TOKENS,
    )
    repetition_penalty: float = option(
        1.0,
        "divides the scores of tokens generated before; 1 is off; FireRedASR's README recommends 3",
        minimum=0.01,
        maximum=MAX_PENALTY,
    )
    beam_size: int = option(
        1,
        "hypotheses followed in parallel; 1 is greedy; FireRedASR's README recommends 3",
        minimum=1,
        maximum=MAX_BEAMS,
        runtimes=BEAM_SEARCHING,
    )
    length_penalty: float = option(
        0.0,
        "of beam search: power of the length that a score is divided by; FireRedASR's README recommends 1",
        minimum=-MAX_POWER,
        maximum=MAX_POWER,
        runtimes=BEAM_SEARCHING,
    )
    length_rule: str = option(
        "checkpoint",
        "which encoder frames count as speech: release, all (the first release, FireRedASR2); head, one or two fewer "
        "(the first project's latest code); checkpoint, as its files say, else release",
        ("checkpoint", *LENGTH_RULES),
    )
    batch_size: int = option(1, "segments of speech transcribed in one batch", minimum=1, maximum=MAX_BATCH_SIZE)

    def __post_init__(self) -> None:
        if self.beam_size > 1 and self.temperature > 0:
            raise BadInput(
                f"beam_size is {self.beam_size} and temperature is {self.temperature:g}; "
                "beam search takes temperature 0, drawing tokens takes beam_size 1"
            )


@dataclass(frozen=True)
class FireRedAsrModel:
    """A FireRedASR-LLM checkpoint without its weights."""

    directory: Path
    frontend: FrontendConfig
    encoder: ConformerConfig
    downsample_rate: int  # encoder frames per speech embedding
    length_rule: str
    lora_alpha: float
    lora_rank: int | None  # None: the rank in the weights
    language: LanguageConfig
    tokenizer: LanguageTokenizer
    speech: str  # the token at the speech's position in the prompt
    speech_id: int  # its row of the table is not used
    stop_id: int
    pad_id: int

    @property
    def cmvn_file(self) -> Path:
        """The statistics of the features."""
        return self.directory / CMVN

    @property
    def longest_seconds(self) -> float:
        """The longest recording in one pass: the range of the encoder's positions."""
        return self.encoder.pe_maxlen * SUBSAMPLING * self.frontend.frame_seconds


def is_fireredasr(directory: Path) -> bool:
    """Returns whether this is a FireRedASR-LLM checkpoint directory, by the names of its files. Never raises an
    error.
    """
    return not _missing_files(directory)


def explain_directory(directory: Path) -> None:
    """Raises `BadInput` if the directory has FireRedASR's weights but lacks other files of FireRedASR-LLM."""
    if (directory / "model.pth.tar").is_file():
        check_files(directory)


def check_files(directory: Path, weights: Path | None = None) -> None:
    """Raises `BadInput` if the directory lacks files of the format, or has the model without a language model.

    Args:
        weights: the weights' file, if it is not one of the directory's two torch files.
    """
    if not directory.is_dir():
        raise BadInput(f"there is no checkpoint directory {directory}")
    expected = FILES if weights is None else (CMVN,)
    missing = _missing_files(directory, expected)
    if missing and is_file(directory / "dict.txt"):
        raise BadInput(
            f"checkpoint directory {directory.name} looks like FireRedASR-AED, which is not supported; "
            "expected FireRedASR-LLM"
        )
    if missing:
        raise BadInput(
            f"checkpoint directory {directory.name} has no {' and no '.join(missing)}; a FireRedASR-LLM checkpoint "
            f"has {', '.join(expected)} and a language model's directory"
        )


def _missing_files(directory: Path, expected: Sequence[str] = FILES) -> list[str]:
    return [name for name in expected if not is_file(directory / name)]


def read_fireredasr(
    directory: Path,
    arguments: Mapping[str, Any],
    encoder_arguments: Mapping[str, Any],
    weights: Path | None = None,
    language_directory: Path | None = None,
    speech: str = SPEECH,
) -> FireRedAsrModel:
    """Returns the model that a directory and the `args` of its two torch files describe.

    Args:
        arguments: the `args` of `model.pth.tar`, by name.
        encoder_arguments: the `args` of `asr_encoder.pth.tar`.
        weights: the file of both, if the directory has neither.
        language_directory: the language model's directory; None to search for it.
        speech: the token at the speech's position.

    Raises `BadInput` if something is missing, out of range, or inconsistent.
    """
    directory = Path(directory).absolute()
    check_files(directory, weights)
    if language_directory is None:
        stated_path = arguments.get("llm_dir")
        language_directory = find_language_directory(directory, stated_path if isinstance(stated_path, str) else "")
    language = read_language_config(language_directory)
    tokenizer = LanguageTokenizer.read(language.directory, (speech,))
    end, pad, speech_id = (tokenizer.id_of(token) for token in (TURN_END, PAD, speech))
    if end is None or pad is None or speech_id is None:
        token, purpose = (TURN_END, "ends a transcript") if end is None else (PAD, "pads one")
        raise BadInput(f"the tokenizer in {language.directory.name} has no token {token}, which {purpose}")
    tokenizer.check_room(language, speech)
    where = f"{directory.name}/{WEIGHTS}" if weights is None else weights.name
    encoder_where = f"{directory.name}/{ENCODER_WEIGHTS}" if weights is None else weights.name
    for key in OTHER_CHANGES:
        if arguments.get(key):
            raise BadInput(
                f"args.{key} in {where} is {arguments[key]!r:.80}; only changes with the scale lora_alpha / lora_r are "
                "supported"
            )
    rank = arguments.get("lora_r")
    return FireRedAsrModel(
        directory=directory,
        frontend=FrontendConfig(window="povey"),
        encoder=_read_encoder(encoder_arguments, encoder_where),
        downsample_rate=_integer(arguments, "encoder_downsample_rate", where, 64, 2),
        length_rule=_length_rule(arguments, where),
        lora_alpha=_number(arguments, "lora_alpha", where, LORA_ALPHA),
        lora_rank=None if rank is None else _integer(arguments, "lora_r", where, MAX_UNITS),
        language=language,
        tokenizer=tokenizer,
        speech=speech,
        speech_id=speech_id,
        stop_id=end,
        pad_id=pad,
    )


def read_vllm_fireredasr(directory: Path) -> FireRedAsrModel:
    """Returns the model of a directory converted for vLLM, which is also its language model's directory.

    Raises `BadInput` for any other directory.
    """
    path = Path(directory).absolute() / "config.json"
    section = read_json_file(path).get(VLLM_SECTION)
    where = f"{VLLM_SECTION} in {path.parent.name}/{path.name}"
    if not isinstance(section, Mapping) or section.get("family") != "fireredasr":
        raise BadInput(f"{where} does not describe a FireRedASR-LLM; expected a directory converted for vLLM")
    arguments, encoder = (section.get(key) for key in SERVED_ARGUMENTS)
    if section.get("format") != VLLM_FORMAT or not isinstance(arguments, Mapping) or not isinstance(encoder, Mapping):
        raise BadInput(
            f"{where} is not of format {VLLM_FORMAT} with {' and '.join(SERVED_ARGUMENTS)}; convert the checkpoint "
            "for vLLM again"
        )
    return read_fireredasr(path.parent, arguments, encoder, path, path.parent, AUDIO)


def find_language_directory(directory: Path, stated_path: str = "") -> Path:
    """Returns the directory of a checkpoint's language model: inside its directory, or beside it; links are followed.

    It looks for the last part of the path that the checkpoint names, for the original's name, and then for a single
    directory inside that contains a language model. Raises `BadInput` that says how to link one.
    """
    last_part = re.split(r"[\\/]", stated_path.rstrip("\\/"))[-1]
    names = list(dict.fromkeys(name for name in (last_part, LANGUAGE_DIRECTORY) if name not in ("", ".", "..")))
    for name in names:
        inside = directory / name
        if inside.is_symlink() and not inside.exists():
            raise BadInput(
                f"{directory.name}/{name} is a link to {inside.readlink()}, and there is no such directory; "
                "expected that of the language model"
            )
    inner_directories = [directory / name for name in names]
    directories = [path for path in inner_directories if path.is_dir()]
    if not directories:
        directories = sorted(path for path in directory.iterdir() if path.is_dir() and is_language_directory(path))
        if len(directories) > 1:
            names_found = ", ".join(path.name for path in directories)
            raise BadInput(
                f"{directory.name} has several language models inside, {names_found}; expected one, or one that is "
                f"called {LANGUAGE_DIRECTORY}"
            )
    if not directories:
        directories = [path for path in (directory.parent / name for name in names) if is_language_directory(path)]
    if not directories:
        raise BadInput(
            f"{directory.name} has no language model: there is no directory {' or '.join(names)} in it or beside it; "
            f"link one with: ln -s /path/to/{LANGUAGE_DIRECTORY} {directory / LANGUAGE_DIRECTORY}"
        )
    return directories[0]


def _read_encoder(arguments: Mapping[str, Any], where: str) -> ConformerConfig:
    config = ConformerConfig(
        idim=_integer(arguments, "idim", where),
        n_layers=_integer(arguments, "n_layers_enc", where, MAX_BLOCKS),
        n_head=_integer(arguments, "n_head", where),
        d_model=_integer(arguments, "d_model", where),
        kernel_size=_integer(arguments, "kernel_size", where, default=33),
        pe_maxlen=_integer(arguments, "pe_maxlen", where, 10**7, 5000),
    )
    if config.idim != NUM_MELS:
        raise BadInput(f"args.idim in {where} is {config.idim}; FireRedASR's features have {NUM_MELS} mel bands")
    if config.d_model % config.n_head or config.d_model % 2:
        raise BadInput(
            f"args.d_model in {where} is {config.d_model}; expected an even multiple of n_head, {config.n_head}"
        )
    if config.kernel_size % 2 == 0:
        raise BadInput(f"args.kernel_size in {where} is {config.kernel_size}; expected an odd number")
    return config


def _integer(
    arguments: Mapping[str, Any], key: str, where: str, maximum: int = MAX_UNITS, default: int | None = None
) -> int:
    return whole_number(arguments, key, f"args.{key} in {where}", default, maximum=maximum)


def _number(arguments: Mapping[str, Any], key: str, where: str, default: float) -> float:
    value = arguments.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_UNITS:
        raise BadInput(f"args.{key} in {where} is {value!r:.80}; expected a number above 0, at most {MAX_UNITS}")
    return float(value)


def _length_rule(arguments: Mapping[str, Any], where: str) -> str:
    rule = arguments.get("length_rule", LENGTH_RULES[0])
    if rule not in LENGTH_RULES:
        raise BadInput(f"args.length_rule in {where} is {rule!r:.80}; expected {' or '.join(LENGTH_RULES)}")
    return str(rule)


def speech_tokens(frames: int, downsample_rate: int) -> int:
    """Returns the number of speech embeddings in the prompt for `frames` feature frames; at least one."""
    return max(encoder_frames(frames) // downsample_rate, 1)


def prompt_ids(model: FireRedAsrModel, instruction: Instruction = DEFAULT_INSTRUCTION) -> np.ndarray:
    """Returns the prompt's ids [tokens], with `speech_id` at the speech's position.

    Args:
        instruction: the user's texts, which replace the family's.

    Raises `BadInput` if these texts contain the token of the speech.
    """
    if model.speech in instruction.text + instruction.system:
        raise BadInput(f"the instruction contains {model.speech}, which marks the recording; expected other words")
    before, after = PROMPT.split(SPEECH)
    text = f"{instruction.system_turn}{before}{model.speech}{after.replace(TASK, instruction.text or TASK)}"
    return np.array(model.tokenizer.encode(text), dtype=np.int64)


def check_length(samples: int, frames: int, model: FireRedAsrModel) -> None:
    """Raises `BadInput` if a chunk is longer than the range of the encoder's positions."""
    if encoder_frames(frames) > model.encoder.pe_maxlen:
        raise BadInput(
            f"a segment of {samples / SAMPLE_RATE:.1f} seconds is longer than the {model.longest_seconds:g} seconds "
            f"that the positions of {model.directory.name} reach; set max_segment_seconds lower, or trace a shorter "
            "recording"
        )


def tidy(text: str) -> str:
    """Returns the transcript in lower case, as in the model's training and in FireRedASR2."""
    return text.strip().lower()
