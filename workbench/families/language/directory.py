"""The directory of a language model in Hugging Face's form: its configuration and its tokenizer.

The plain causal language model uses it, and every speech family with a language model. It opens no weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.core.characters import check_characters
from workbench.core.config_values import whole_number
from workbench.core.errors import BadInput, message_of
from workbench.families.vocabularies.byte_level import bytes_of, spell
from workbench.formats.json_files import read_json_file

MODEL_TYPES = ("qwen2", "qwen3", "llama", "mistral")  # decoders with one structure, so their stages have the same names
TURN_END = "<|im_end|>"
REPLACEMENT = "\ufffd"  # what decoding writes for bytes that are not a character
VLLM_SECTION, VLLM_FORMAT = "speech_workbench", 1  # of config.json in a directory converted for vLLM
# Marks the position of the user's embedding in a prompt, unless the configuration names another token.
PLACEHOLDER = "<|fim_pad|>"
# Marks the speech's position in a prompt for vLLM; its row of the table is not used.
AUDIO = "<|AUDIO|>"

# Keys that other networks and vLLM follow, but not the networks of these types in transformers; values without effect.
UNFOLLOWED: Mapping[str, tuple[Any, ...]] = {
    "partial_rotary_factor": (None, 1),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "query_pre_attn_scalar": (None,),
    "attention_multiplier": (None,),
    "embedding_multiplier": (None, 1),
    "residual_multiplier": (None, 1),
    "logits_scaling": (None, 1),
    "logit_scale": (None, 1),
}
FULL, SLIDING = "full_attention", "sliding_attention"
SCALINGS = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")  # of positions, those of transformers
ADAPTER = "adapter_config.json"  # of a low-rank change that peft has saved


@dataclass(frozen=True)
class LanguageConfig:
    """The configuration of a language model, without its weights."""

    directory: Path
    model_type: str
    hidden_size: int
    layers: int
    vocabulary: int  # rows of the embedding table, which may include spare ones
    context: int  # the most positions
    stop_ids: tuple[int, ...]  # ids that end a generation, according to its files
    pad_id: int | None
    placeholder: str = PLACEHOLDER  # marks the position of an embedding in a prompt's text


def is_language_directory(directory: Path) -> bool:
    """Returns whether this is the directory of a causal language model of a known type. Never raises an error."""
    try:
        return read_json_file(directory / "config.json").get("model_type") in MODEL_TYPES
    except BadInput:
        return False


def explain_directory(directory: Path) -> None:
    """Raises `BadInput` if the directory has a `config.json` but no `config.yaml`, and it is damaged or unknown."""
    if (directory / "config.json").is_file() and not (directory / "config.yaml").is_file():
        read_language_config(directory)


def read_language_config(directory: Path) -> LanguageConfig:
    """Reads `config.json`; raises `BadInput` if it is missing, damaged or of an unknown type."""
    if not directory.is_dir():
        raise BadInput(f"there is no language model directory {directory}")
    if not (directory / "config.json").is_file():
        raise BadInput(f"language model directory {directory.name} has no config.json")
    config = read_json_file(directory / "config.json")
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise BadInput(f"{directory.name}/config.json is of model type {kind!r}; expected {', '.join(MODEL_TYPES)}")
    check_followed(config, kind, f"{directory.name}/config.json")
    if (directory / ADAPTER).is_file():
        raise BadInput(
            f"{directory.name} has {ADAPTER}, a change to its weights that is not added here; save the model with the "
            "change merged, or move that file elsewhere"
        )
    stops = [*_numbers(config.get("eos_token_id"))]
    generation = directory / "generation_config.json"
    if generation.is_file():
        stops += _numbers(read_json_file(generation).get("eos_token_id"))
    pads = _numbers(config.get("pad_token_id"))
    vocabulary = _size(config, "vocab_size", directory)
    return LanguageConfig(
        directory=directory,
        model_type=kind,
        hidden_size=_size(config, "hidden_size", directory),
        layers=_size(config, "num_hidden_layers", directory),
        vocabulary=vocabulary,
        context=_size(config, "max_position_embeddings", directory),
        # Some files have -1 for none, and vLLM refuses a request with an id that the model cannot write.
        stop_ids=tuple(dict.fromkeys(number for number in stops if 0 <= number < vocabulary)),
        pad_id=pads[0] if pads else None,
        placeholder=placeholder_in(config.get(VLLM_SECTION), f"{directory.name}/config.json"),
    )


def check_followed(config: Mapping[str, Any], kind: str, where: str) -> None:
    """Raises `BadInput` for a key that would change what the network computes, and that its type does not follow."""
    rotary = [
        section for name in ("rope_parameters", "rope_scaling") if isinstance(section := config.get(name), Mapping)
    ]
    for section in (config, *rotary):
        for key, harmless in UNFOLLOWED.items():
            if (value := section.get(key)) not in harmless:
                raise _unfollowed(key, value, kind, where)
    for section in rotary:
        scaling = section.get("rope_type") or section.get("type") or SCALINGS[0]
        if scaling not in SCALINGS:
            raise BadInput(f"rope_type in {where} is {scaling!r:.80}; supported are {', '.join(SCALINGS)}")
    if config.get("is_causal") not in (None, True):
        raise BadInput(f"is_causal in {where} is {config['is_causal']!r:.80}; only models that write are supported")
    window, context = config.get("sliding_window"), config.get("max_position_embeddings")
    if kind == "llama" and isinstance(window, int) and isinstance(context, int) and 0 < window < context:
        raise _unfollowed("sliding_window", window, kind, where)
    kinds = config.get("layer_types")
    windowed = config.get("use_sliding_window") and config.get("sliding_window", True)  # there is a default
    if kind in ("qwen2", "qwen3") and isinstance(kinds, list) and SLIDING in kinds and not windowed:
        raise BadInput(
            f"layer_types in {where} has {SLIDING} without a window; expected sliding_window with use_sliding_window, "
            f"or {FULL} alone"
        )
    if kind in ("llama", "mistral") and isinstance(kinds, list):
        same = SLIDING if kind == "mistral" and config.get("sliding_window") else FULL
        if any(each != same for each in kinds):
            raise _unfollowed("layer_types", kinds, kind, where)


def _unfollowed(key: str, value: Any, kind: str, where: str) -> BadInput:
    problem = f"{key} in {where} is {value!r:.80}, which networks of type {kind} ignore"
    return BadInput(f"{problem}; expected a model without it")


def placeholder_in(section: Any, where: str) -> str:
    """Returns the placeholder for an embedding in a prompt's text, which a configuration may name.

    Args:
        section: of `config.json`, such as `"speech_workbench": {"placeholder": "<|fim_pad|>"}`; None if it has none.
        where: the file's name in messages.

    Raises `BadInput` for a name that is not a text.
    """
    placeholder = section.get("placeholder", PLACEHOLDER) if isinstance(section, Mapping) else PLACEHOLDER
    if not isinstance(placeholder, str) or not placeholder:
        raise BadInput(f"placeholder of {VLLM_SECTION} in {where} is {placeholder!r:.80}; expected a token's text")
    return placeholder


class LanguageTokenizer:
    """Turns text into ids and back; wraps the tokenizer that `transformers` reads from the directory."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer

    @classmethod
    def read(cls, directory: Path, additional: Sequence[str] = ()) -> LanguageTokenizer:
        """Reads the tokenizer of a directory, and appends the `additional` special tokens that it lacks.

        Raises `BadInput` if its files are missing or damaged.
        """
        files = ("tokenizer.json", "vocab.json", "tokenizer.model")
        if not any((directory / name).is_file() for name in files):
            raise BadInput(f"language model directory {directory.name} has no tokenizer; expected {' or '.join(files)}")
        from transformers import AutoTokenizer

        try:
            # Beside a tekken.json, transformers would use the package mistral-common where it is installed, which reads
            # no special tokens in a text and no chat template.
            tokenizer = AutoTokenizer.from_pretrained(
                str(directory), local_files_only=True, trust_remote_code=False, mistral_format=False
            )
        except Exception as error:  # its readers raise many kinds
            raise BadInput(f"the tokenizer in {directory.name} cannot be read: {message_of(error)}") from error
        missing = [token for token in additional if token not in tokenizer.get_vocab()]
        if missing:
            tokenizer.add_special_tokens({"additional_special_tokens": missing})
        return cls(tokenizer)

    @classmethod
    def read_fast(cls, directory: Path) -> LanguageTokenizer:
        """Reads `tokenizer.json` of a directory whose configuration transformers does not know.

        Raises `BadInput` if it is missing or damaged.
        """
        if not (directory / "tokenizer.json").is_file():
            raise BadInput(f"{directory.name} has no tokenizer; expected a tokenizer.json")
        from transformers import PreTrainedTokenizerFast

        try:
            tokenizer = PreTrainedTokenizerFast.from_pretrained(str(directory), local_files_only=True)
        except Exception as error:  # its readers raise many kinds
            raise BadInput(f"the tokenizer in {directory.name} cannot be read: {message_of(error)}") from error
        return cls(tokenizer)

    def __len__(self) -> int:
        return len(self._tokenizer)

    @property
    def highest_id(self) -> int:
        """The largest id of a token; ids may have gaps."""
        return max(self._vocabulary.values(), default=-1)

    def check_room(self, language: LanguageConfig, added: str = "") -> None:
        """Raises `BadInput` if the embedding table has no row for a token, including `added`."""
        # Only vLLM's prompts may contain the token of audio.
        highest = max((number for token, number in self._vocabulary.items() if token != AUDIO), default=-1)
        if highest >= language.vocabulary:
            counted = f" with {added}" if added else ""
            raise BadInput(
                f"the tokenizer in {language.directory.name} has ids up to {highest}{counted}; "
                f"its config.json has room for {language.vocabulary}"
            )

    def encode(self, text: str, begin: bool = False) -> list[int]:
        """Returns the ids of a text that may contain special tokens; `begin` adds the token that the model expects at
        the start.
        """
        check_characters(text, "the text for the model")
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=begin, verbose=False)
        return ids

    def encode_plain(self, text: str) -> list[int]:
        """Returns the ids of a text whose special tokens are text like any other."""
        check_characters(text, "the text for the model")
        # Without `verbose`, transformers does not warn of a long text; a session says itself if there is no room.
        ids: list[int] = self._tokenizer.encode(
            text, add_special_tokens=False, split_special_tokens=True, verbose=False
        )
        return ids

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """Returns the text of ids, without special tokens unless asked for."""
        known = [number for number in ids if number in self._spellings]  # a table may have rows without a token
        decoded: str = self._tokenizer.decode(
            known, skip_special_tokens=not special, clean_up_tokenization_spaces=False
        )
        return decoded

    def piece(self, number: int) -> str:
        """Returns one token as text for display; bytes outside complete characters become `<E5><8A>`."""
        text = self.decode([number], special=True)
        if REPLACEMENT not in text:
            return text
        content = bytes_of(self._spellings.get(number, ""))
        return spell(content) if content else text

    @cached_property
    def _spellings(self) -> Mapping[int, str]:
        """The vocabulary's spelling of each token."""
        return {number: token for token, number in self._vocabulary.items()}

    def id_of(self, token: str) -> int | None:
        """Returns the id of a token; None if the vocabulary does not have it."""
        return self._vocabulary.get(token)

    @cached_property
    def _vocabulary(self) -> Mapping[str, int]:
        vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        return vocabulary

    @property
    def definition(self) -> Mapping[str, Any]:
        """The tokenizer in the form of `tokenizer.json`, added tokens included."""
        fast = getattr(self._tokenizer, "backend_tokenizer", None)
        if fast is None:
            raise BadInput("the tokenizer has no form as tokenizer.json; expected one of the tokenizers library")
        content: dict[str, Any] = json.loads(fast.to_str())
        return content

    def save(self, directory: Path, additional: Sequence[str] = ()) -> None:
        """Writes the tokenizer's files, with those of the `additional` special tokens appended that it lacks."""
        from transformers import AddedToken

        missing = [token for token in additional if self.id_of(token) is None]
        added = [AddedToken(token, special=True, normalized=False) for token in missing]
        if added:
            self._tokenizer.add_tokens(added, special_tokens=True)
            for name in ("_vocabulary", "_spellings"):
                self.__dict__.pop(name, None)
        self._tokenizer.save_pretrained(str(directory))

    @property
    def special_ids(self) -> Mapping[str, int]:
        """Ids of the tokens with a special role, by role, such as eos and pad."""
        roles = {role: getattr(self._tokenizer, f"{role}_token_id", None) for role in ("bos", "eos", "pad", "unk")}
        return {role: number for role, number in roles.items() if isinstance(number, int)}

    @property
    def chat_template(self) -> str | None:
        """The template that `chat` uses, of several the one named default; None if there is none."""
        template = self._tokenizer.chat_template
        if isinstance(template, Mapping):
            template = template.get("default")
        return template if isinstance(template, str) else None

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` can be used."""
        return bool(self._tokenizer.chat_template)

    def chat(self, messages: Sequence[Mapping[str, str]], **variables: Any) -> str:
        """Returns the prompt of a conversation, as the model's own template writes it, ready for the answer."""
        prompt: str = self._tokenizer.apply_chat_template(
            [dict(message) for message in messages], tokenize=False, add_generation_prompt=True, **variables
        )
        return prompt


def _numbers(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [number for number in values if isinstance(number, int) and not isinstance(number, bool)]


def _size(config: Mapping[str, Any], key: str, directory: Path) -> int:
    return whole_number(config, key, f"{key} in {directory.name}/config.json")
