"""Fun-ASR-Nano: everything that is the same on every runtime.

A SAN-M encoder and an adaptor turn speech into embeddings in the prompt of a Qwen3 language model, which writes the
transcript ("Fun-ASR Technical Report", An et al. 2025). This file opens no weights and computes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from workbench.audio.frontend import FrontendConfig
from workbench.core.config_values import whole_number
from workbench.core.errors import BadInput
from workbench.core.options import MAX_BATCH_SIZE, ListeningOptions, option, option_specs
from workbench.decoding.ctc_options import CtcHeadOptions
from workbench.decoding.generation import GenerationOptions
from workbench.families.funasr import FunasrCheckpoint, is_funasr_directory, read_checkpoint
from workbench.families.language.directory import TURN_END, LanguageConfig, LanguageTokenizer, read_language_config
from workbench.families.sanm.encoder import MAX_UNITS, SanmConfig, config_number, expect, read_sanm_config
from workbench.families.speech_llm.instruction import DEFAULT_INSTRUCTION, Instruction
from workbench.families.vocabularies.tiktoken import ByteVocabulary, read_tiktoken

MODELS = ("FunASRNano",)
ADAPTOR_EPS = 1e-12  # of the adaptor's layer norms; not in the file
ADAPTOR_HEADS = 8  # the default of the file
LOW_FRAME_RATE = 8  # frames of the encoder for each position of the prompt, with `use_low_frame_rate`
SPEECH = -1  # marks the speech's position in a prompt's ids
SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
HOTWORDS = (
    "请结合上下文信息，更加准确地完成语音转写任务。如果没有相关信息，我们会留空。\n\n\n"
    "**上下文信息：**\n\n\n热词列表：[{}]\n"
)
HOTWORDS_BETWEEN = ", "
TASK, TASK_INTO = "语音转写", "语音转写成"  # the second is followed by a language
WITH_ITN, WITHOUT_ITN = "：", "，不进行文本规整："
NO_THINKING = "<think>\n\n</think>\n\n"
CTC_PREFIXES = ("ctc_decoder.", "ctc.")  # of the tensors of the CTC branch
UNUSED_TENSORS = tuple(f"{prefix}*" for prefix in CTC_PREFIXES)  # no part of the way to the language model
CTC_TOKENS = "multilingual.tiktoken"
CTC_VOCABULARY = 60515  # where the configuration does not say

# The names of languages in the prompt. A checkpoint does not state which of them it knows.
LANGUAGES: Mapping[str, str] = {
    "zh": "中文",
    "en": "英文",
    "ja": "日文",
    "ko": "韩文",
    "yue": "粤语",
    "vi": "越南语",
    "id": "印尼语",
    "th": "泰语",
    "ms": "马来语",
    "tl": "菲律宾语",
    "ar": "阿拉伯语",
    "hi": "印地语",
    "bg": "保加利亚语",
    "hr": "克罗地亚语",
    "cs": "捷克语",
    "da": "丹麦语",
    "nl": "荷兰语",
    "et": "爱沙尼亚语",
    "fi": "芬兰语",
    "el": "希腊语",
    "hu": "匈牙利语",
    "ga": "爱尔兰语",
    "lv": "拉脱维亚语",
    "lt": "立陶宛语",
    "mt": "马耳他语",
    "pl": "波兰语",
    "pt": "葡萄牙语",
    "ro": "罗马尼亚语",
    "sk": "斯洛伐克语",
    "sl": "斯洛文尼亚语",
    "sv": "瑞典语",
}


@dataclass(frozen=True)
class FunasrNanoWriting(GenerationOptions, ListeningOptions):
    """The user's options for what Fun-ASR-Nano's language model writes."""

    language: str = option("auto", "the language spoken, or auto", ("auto", *LANGUAGES))
    itn: bool = option(True, "inverse text normalisation: figures where numbers are spoken")
    hotwords: tuple[str, ...] = option((), "words that are likely to be said, such as names")
    batch_size: int = option(1, "segments of speech transcribed in one batch", minimum=1, maximum=MAX_BATCH_SIZE)


@dataclass(frozen=True)
class FunasrNanoOptions(CtcHeadOptions, FunasrNanoWriting):
    """The user's options for Fun-ASR-Nano. A CTC beam search needs a CTC branch, on PyTorch or GGUF."""

    # The options of conversations (see `workbench.core.options.conversation_options_class`).
    CONVERSING: ClassVar[type] = FunasrNanoWriting
    # The runtimes on which options work.
    ONLY_ON: ClassVar[Mapping[str, tuple[str, ...]]] = {
        spec.name: ("pytorch", "gguf") for spec in option_specs(CtcHeadOptions)
    }


@dataclass(frozen=True)
class AdaptorConfig:
    """The adaptor between encoder and language model."""

    downsample_rate: int
    use_low_frame_rate: bool
    encoder_dim: int
    ffn_dim: int
    llm_dim: int
    n_layer: int
    attention_heads: int


class Lora(NamedTuple):
    """The low-rank changes in a checkpoint, which FunASR adds when it opens it: W + alpha / rank * B A."""

    alpha: float
    rank: int


@dataclass(frozen=True)
class CtcBranch:
    """A second decoder of a checkpoint, from the encoder's output to tokens of its own.

    Transformer blocks as those of the adaptor, and a linear layer to the vocabulary.
    """

    decoder: AdaptorConfig
    tokens: Path  # a tiktoken file
    count: int  # of the outputs
    blank: int

    @cached_property
    def vocabulary(self) -> ByteVocabulary:
        """Its tokens; raises `BadInput` if the file is broken."""
        return read_tiktoken(self.tokens, self.count)


def with_vocabulary(branch: CtcBranch | str) -> CtcBranch | str:
    """Returns the CTC branch with its vocabulary read, or why it cannot be used."""
    if isinstance(branch, str):
        return branch
    try:
        assert len(branch.vocabulary) == branch.count  # read on the first use
    except BadInput as error:
        return str(error)
    return branch


@dataclass(frozen=True)
class FunasrNanoModel:
    """A Fun-ASR-Nano checkpoint without its weights."""

    checkpoint: FunasrCheckpoint
    frontend: FrontendConfig
    cmvn_file: Path | None
    encoder: SanmConfig
    adaptor: AdaptorConfig
    language: LanguageConfig
    tokenizer: LanguageTokenizer
    do_think: bool
    sys_prompt: bool
    stop_ids: tuple[int, ...]
    ctc: CtcBranch | str  # or the reason why it cannot be used, for the reader of a message
    lora: Lora | None = None  # of the language model's layers in `model.pt`


def is_funasr_nano(directory: Path) -> bool:
    """Returns whether this is a Fun-ASR-Nano checkpoint directory."""
    return is_funasr_directory(directory, MODELS)


def read_funasr_nano(directory: Path, weights: Path | None = None) -> FunasrNanoModel:
    """Reads configuration and tokenizer.

    Args:
        weights: the weights' file, if it is outside the directory.

    Raises `BadInput` if they are missing or inconsistent.
    """
    checkpoint = read_checkpoint(directory, weights)
    if checkpoint.model not in MODELS:
        raise BadInput(f"{checkpoint.described_in} is for model {checkpoint.model!r}; expected FunASRNano")
    expect(checkpoint.config, "audio_encoder", "SenseVoiceEncoderSmall", directory.name)
    expect(checkpoint.config, "audio_adaptor", "Transformer", directory.name)
    frontend = checkpoint.frontend()
    encoder = read_sanm_config(
        checkpoint.section("audio_encoder_conf"), frontend.width, 1e-5, "audio_encoder_conf", second_norm=True
    )
    language = read_language_config(_language_directory(checkpoint))
    adaptor = _read_adaptor(checkpoint, encoder, language)
    tokenizer = LanguageTokenizer.read(language.directory)
    end = tokenizer.id_of(TURN_END)
    if end is None:
        raise BadInput(f"the tokenizer in {language.directory.name} has no token {TURN_END}, which ends a transcript")
    tokenizer.check_room(language)
    dataset = checkpoint.section("dataset_conf")
    return FunasrNanoModel(
        checkpoint=checkpoint,
        frontend=frontend,
        cmvn_file=checkpoint.file("frontend_conf", "cmvn_file"),
        encoder=encoder,
        adaptor=adaptor,
        language=language,
        tokenizer=tokenizer,
        do_think=bool(dataset.get("do_think", True)),
        sys_prompt=bool(dataset.get("sys_prompt", True)),
        stop_ids=tuple(dict.fromkeys((*language.stop_ids, end))),
        ctc=_ctc_branch(checkpoint, encoder),
        lora=_read_lora(checkpoint),
    )


def read_vllm_funasr_nano(directory: Path) -> FunasrNanoModel:
    """Reads the model of a directory converted for vLLM; raises the same errors as `read_funasr_nano`."""
    return read_funasr_nano(directory, weights=directory / "model.safetensors")


def _language_directory(checkpoint: FunasrCheckpoint) -> Path:
    stated_path = checkpoint.section("llm_conf").get("init_param_path")
    where = checkpoint.directory.name
    if not isinstance(stated_path, str) or not stated_path:
        raise BadInput(f"llm_conf.init_param_path in {checkpoint.described_in} names no language model directory")
    # The path may be one of the machine that trained the model. Its last part is beside the weights.
    for path in (checkpoint.directory / stated_path, checkpoint.directory / Path(stated_path).name):
        if path.is_dir():
            return path
    raise BadInput(
        f"{checkpoint.described_in} names the language model {stated_path}, and there is no such directory in {where}; "
        "it holds the configuration and the tokenizer"
    )


def _read_adaptor(checkpoint: FunasrCheckpoint, encoder: SanmConfig, language: LanguageConfig) -> AdaptorConfig:
    where = "audio_adaptor_conf"
    adaptor = _read_transformer(checkpoint, where, encoder, language.hidden_size)
    if adaptor.llm_dim != language.hidden_size:
        raise BadInput(
            f"{where}.llm_dim is {adaptor.llm_dim} and the language model in {language.directory.name} is "
            f"{language.hidden_size} wide; expected the same"
        )
    max_rate = LOW_FRAME_RATE if adaptor.use_low_frame_rate else 1
    if adaptor.downsample_rate > max_rate:
        # FunASR keeps more positions in the prompt than the adaptor has rows: it fills the first, and the rest read
        # token 0. Its engine on vLLM leaves them out. So such a checkpoint has no one meaning.
        setting, expected = ("with", f"at most {max_rate}") if adaptor.use_low_frame_rate else ("without", "1")
        raise BadInput(
            f"{where}.downsample_rate in {checkpoint.described_in} is {adaptor.downsample_rate} {setting} "
            f"use_low_frame_rate; expected {expected}, as FunASR's prompt has more positions for speech than this "
            "adaptor has rows"
        )
    return adaptor


def _read_transformer(checkpoint: FunasrCheckpoint, where: str, encoder: SanmConfig, width: int) -> AdaptorConfig:
    """Reads the section `where`; `width` is that of the output where the section names none."""
    section = checkpoint.section(where)
    config = AdaptorConfig(
        downsample_rate=config_number(section, "downsample_rate", where, 2),
        use_low_frame_rate=bool(section.get("use_low_frame_rate", False)),
        encoder_dim=config_number(section, "encoder_dim", where, encoder.output_size),
        ffn_dim=config_number(section, "ffn_dim", where, 2048),
        llm_dim=config_number(section, "llm_dim", where, width),
        n_layer=config_number(section, "n_layer", where, 2, 0),
        attention_heads=config_number(section, "attention_heads", where, ADAPTOR_HEADS),
    )
    if config.encoder_dim != encoder.output_size:
        raise BadInput(
            f"{where}.encoder_dim is {config.encoder_dim} and the encoder is {encoder.output_size} wide; "
            "expected the same"
        )
    if config.llm_dim % config.attention_heads:
        raise BadInput(
            f"{where}.llm_dim {config.llm_dim} is not a multiple of {config.attention_heads} attention heads"
        )
    return config


def _read_lora(checkpoint: FunasrCheckpoint) -> Lora | None:
    """Returns alpha and rank if `llm_conf.use_lora` is set; the defaults are FunASR's."""
    language = checkpoint.section("llm_conf")
    if not language.get("use_lora"):
        return None
    where = "llm_conf.lora_conf"
    section = language.get("lora_conf") or {}
    if not isinstance(section, Mapping):
        raise BadInput(f"{where} in config.yaml is {section!r:.80}; expected a mapping")
    alpha = section.get("lora_alpha", 32)
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha <= MAX_UNITS:
        raise BadInput(f"{where}.lora_alpha in config.yaml is {alpha!r:.80}; expected a number above 0")
    return Lora(float(alpha), config_number(section, "r", where, 16))


def _ctc_branch(checkpoint: FunasrCheckpoint, encoder: SanmConfig) -> CtcBranch | str:
    """Returns the CTC branch, or why there is none that can be used. The rest of the model works without it."""
    try:
        return _read_ctc_branch(checkpoint, encoder)
    except BadInput as error:
        return str(error)


def _read_ctc_branch(checkpoint: FunasrCheckpoint, encoder: SanmConfig) -> CtcBranch | str:
    """Returns the CTC branch, or why the checkpoint has none that can be used."""
    where = checkpoint.directory.name
    if checkpoint.config.get("ctc_decoder") != "Transformer":
        return f"{checkpoint.described_in} names no ctc_decoder of the kind Transformer"
    decoder = _read_transformer(checkpoint, "ctc_decoder_conf", encoder, encoder.output_size)
    if decoder.llm_dim != encoder.output_size:
        raise BadInput(
            f"ctc_decoder_conf.llm_dim is {decoder.llm_dim} and its output layer reads {encoder.output_size} values; "
            "expected the same"
        )
    tokens = _ctc_tokens(checkpoint)
    if tokens is None:
        return f"{where} has no {CTC_TOKENS}, which lists the tokens of its CTC branch; put that file beside model.pt"
    count = whole_number(
        checkpoint.config, "ctc_vocab_size", "ctc_vocab_size in config.yaml", CTC_VOCABULARY, 2, MAX_UNITS
    )
    blank = config_number(checkpoint.section("ctc_conf"), "blank_id", "ctc_conf", count - 1, 0, count - 1)
    return CtcBranch(decoder, tokens, count, blank)


def _ctc_tokens(checkpoint: FunasrCheckpoint) -> Path | None:
    key = "ctc_tokenizer_conf"  # at the top, or else where published checkpoints have it
    conf = checkpoint.config.get(key, checkpoint.section("dataset_conf").get(key))
    stated_path = conf.get("vocab_path") if isinstance(conf, Mapping) else None
    # A path may be one of the machine that trained the model, as that of the language model.
    names = [CTC_TOKENS, *([str(stated_path), Path(str(stated_path)).name] if stated_path else [])]
    return next((path for name in reversed(names) if (path := checkpoint.directory / name).is_file()), None)


def audio_tokens(frames: int, adaptor: AdaptorConfig) -> int:
    """Returns the number of adaptor rows that the prompt takes, for `frames` LFR frames.

    With the low frame rate it is only the first eighth, rounded up: the network learns to move everything there.
    Without it, `downsample_rate` is 1.
    """
    return -(-frames // LOW_FRAME_RATE) if adaptor.use_low_frame_rate else frames


def instruction(options: FunasrNanoOptions) -> str:
    """Returns the text of the user's turn before the speech."""
    text = HOTWORDS.format(HOTWORDS_BETWEEN.join(options.hotwords)) if options.hotwords else ""
    text += TASK if options.language == "auto" else f"{TASK_INTO}{LANGUAGES[options.language]}"
    return text + (WITH_ITN if options.itn else WITHOUT_ITN)


def prompt_ids(
    model: FunasrNanoModel, options: FunasrNanoOptions, custom: Instruction = DEFAULT_INSTRUCTION
) -> np.ndarray:
    """Returns the prompt's ids [tokens], with `SPEECH` at the speech's position.

    Args:
        custom: the user's texts, which replace the family's.
    """
    system = custom.system_turn or (SYSTEM if model.sys_prompt else "")
    before = system + f"<|im_start|>user\n{custom.text or instruction(options)}"
    after = f"{TURN_END}\n<|im_start|>assistant\n" + ("" if model.do_think else NO_THINKING)
    # Each side is tokenized separately, as in the original: a merge must not cross the speech.
    return np.array([*model.tokenizer.encode(before), SPEECH, *model.tokenizer.encode(after)], dtype=np.int64)


def tidy(text: str) -> str:
    """Returns the transcript with one space for each pause mark of the model and for each run of spaces."""
    return re.sub(r"\s+", " ", text.replace("/sil", " ")).strip()
