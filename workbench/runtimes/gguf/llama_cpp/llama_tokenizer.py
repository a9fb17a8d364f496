"""A tokenizer that uses the vocabulary in a language model's GGUF file, through llama.cpp.

It serves files that do not contain the tokenizer of their checkpoint. The chat template runs in a sandbox.
"""

from __future__ import annotations

import ctypes
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from workbench.core.characters import check_characters
from workbench.core.errors import BadInput
from workbench.families.language.directory import LanguageConfig, LanguageTokenizer
from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.llama_cpp.llama import LlamaModel

NORMALISED = ("qwen2", "qwen35")  # pre-tokenizers of models trained on NFC text; llama.cpp does not normalise
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # types of tokens
SENTENCE_PIECE = 1  # of llama_vocab_type
TEMPLATE = "tokenizer.chat_template"
ROLES = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}  # tokens with a role, by their name in keys


class LlamaTokenizer(LanguageTokenizer):
    """The tokenizer of a loaded model; usable as long as the model is open.

    Args:
        model: loaded with its vocabulary.
    """

    def __init__(self, model: LlamaModel, file: GgufFile):
        self.model = model
        self.file = file
        self._functions = model.functions
        kinds = file.numbers("tokenizer.ggml.token_type")
        self._kinds = kinds.tolist() if kinds is not None else []
        self._normalises = file.text("tokenizer.ggml.pre", "") in NORMALISED

    @cached_property
    def _tokens(self) -> list[str]:
        return self.file.texts("tokenizer.ggml.tokens") or []

    @cached_property
    def _vocabulary(self) -> Mapping[str, int]:
        unused_ids = {number for number, kind in enumerate(self._kinds) if kind == UNUSED}
        return {token: number for number, token in enumerate(self._tokens) if number not in unused_ids}

    @cached_property
    def _special(self) -> re.Pattern[str] | None:
        """A pattern of the tokens that a text contains literally, the longest first."""
        tokens = [self._tokens[number] for number, kind in enumerate(self._kinds) if kind in (CONTROL, USER_DEFINED)]
        longest_first = sorted((token for token in tokens if token), key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None

    def __len__(self) -> int:
        count: int = self._functions.llama_vocab_n_tokens(self.model.vocabulary)
        return count

    def check_room(self, language: LanguageConfig, added: str = "") -> None:
        """Raises `BadInput` if the embedding table has fewer rows than there are tokens."""
        if len(self) > language.vocabulary:
            raise BadInput(
                f"{self.file.name} has {len(self)} tokens; its table of embeddings has room for {language.vocabulary}"
            )

    def encode(self, text: str, begin: bool = False) -> list[int]:
        """Returns the ids of a text that may contain special tokens; `begin` adds the token that the model expects at
        the start.
        """
        return self._encode(self._normalise(text), begin, special=True)

    def encode_plain(self, text: str) -> list[int]:
        """Returns the ids of a text whose special tokens are text like any other."""
        return self._encode(unicodedata.normalize("NFC", text) if self._normalises else text, False, special=False)

    def _encode(self, text: str, begin: bool, special: bool) -> list[int]:
        check_characters(text, "the text for the model")
        data = text.encode("utf-8")
        functions, vocabulary = self._functions, self.model.vocabulary
        size = len(data) + 8
        while True:
            ids = (ctypes.c_int32 * size)()
            count = functions.llama_tokenize(vocabulary, data, len(data), ids, size, begin, special)
            if count >= 0:
                return ids[:count]
            size = -count

    def _normalise(self, text: str) -> str:
        if not self._normalises or text.isascii():
            return text
        parts = self._special.split(text) if self._special else [text]
        return "".join(part if place % 2 else unicodedata.normalize("NFC", part) for place, part in enumerate(parts))

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """Returns the text of ids, without special tokens unless asked for."""
        size = len(self)
        valid = [number for number in ids if 0 <= number < size]
        if self._functions.llama_vocab_type(self.model.vocabulary) == SENTENCE_PIECE:
            return self._detokenise(valid, special)
        return b"".join(self._bytes(number, special) for number in valid).decode("utf-8", "replace")

    def _bytes(self, number: int, special: bool) -> bytes:
        if number < len(self._kinds) and self._kinds[number] == UNUSED:
            return b""  # a spare row without a name
        size = 64
        while True:
            buffer = (ctypes.c_char * size)()
            count = self._functions.llama_token_to_piece(self.model.vocabulary, number, buffer, size, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            size = -count

    def _detokenise(self, ids: Sequence[int], special: bool) -> str:
        """Returns the text as llama.cpp joins SentencePiece's pieces, which is more than concatenation."""
        id_array = (ctypes.c_int32 * len(ids))(*ids)
        size = 16 * len(ids) + 16
        while True:
            buffer = (ctypes.c_char * size)()
            count = self._functions.llama_detokenize(
                self.model.vocabulary, id_array, len(ids), buffer, size, not special, special
            )
            if count >= 0:
                return buffer.raw[:count].decode("utf-8", "replace")
            size = -count

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` can be used."""
        return bool(self.file.text(TEMPLATE, ""))

    def chat(self, messages: Sequence[Mapping[str, str]], **variables: Any) -> str:
        """Returns the prompt of a conversation, as the model's own template writes it, ready for the answer."""
        values = {
            "messages": [dict(message) for message in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": True,
            **self._named_tokens(),
            **variables,
        }
        prompt: str = self._template.render(**values)
        return prompt

    @cached_property
    def _template(self) -> Any:
        from workbench.runtimes.gguf.llama_cpp.chat_templates import compiled

        return compiled(self.file.text(TEMPLATE))

    def _named_tokens(self) -> dict[str, str]:
        """Returns the texts of the tokens that a template may name."""
        roles = self._roles
        return {f"{role}_token": self._tokens[roles[role]] for role in ("bos", "eos") if role in roles}

    @property
    def special_ids(self) -> Mapping[str, int]:
        """Ids of the tokens with a special role, by role.

        Files of models whose texts begin with no token name one for bos, too, and say that it is not added.
        """
        roles = self._roles
        adds = self.file.flag("tokenizer.ggml.add_bos_token", True)
        return roles if adds else {role: number for role, number in roles.items() if role != "bos"}

    @cached_property
    def _roles(self) -> dict[str, int]:
        keys = {role: f"tokenizer.ggml.{name}_token_id" for role, name in ROLES.items()}
        last_id = len(self._tokens) - 1
        return {role: self.file.whole(key, maximum=last_id) for role, key in keys.items() if key in self.file.metadata}
