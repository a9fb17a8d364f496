"""Prompts with embeddings: a placeholder in the text stands for each embedding and becomes one position per token.

The functions lead from the user's input to the ids and rows of every position. This file knows neither tokenizers nor
networks.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import BadInput, message_of
from workbench.embeddings import Embedding, embedding_of, read_embedding

Injected = np.ndarray | Embedding | Path | bytes | str
"""An embedding as a user passes it: an array [tokens, hidden], an `Embedding`, or a source for `read_embedding` (a file
by its `Path`, its bytes, or its base64 text). A PyTorch tensor counts as an array."""


@dataclass(frozen=True, eq=False)
class TokenPrompt:
    """A prompt as a language model reads it, position by position."""

    ids: list[int]  # the token of each position; the placeholder's at rows of embeddings
    embeddings: tuple[Embedding, ...] = ()
    placeholder: int = -1  # its id

    @property
    def rows(self) -> np.ndarray:
        """The rows that replace the placeholders, [placeholders, hidden]; requires embeddings."""
        return np.concatenate([each.values for each in self.embeddings])

    @property
    def is_embedding(self) -> np.ndarray:
        """The positions that are rows of embeddings: bool [positions]."""
        if not self.embeddings:
            return np.zeros(len(self.ids), bool)
        found: np.ndarray = np.array(self.ids) == self.placeholder
        return found

    @property
    def digest(self) -> str:
        """A digest of ids and embeddings, 16 hexadecimal digits."""
        digest = hashlib.sha256(np.array(self.ids, dtype="<i8").tobytes())
        for each in self.embeddings:
            digest.update(each.digest.encode())
        return digest.hexdigest()[:16]

    @property
    def named(self) -> dict[str, Any]:
        """The entry for a trace's metadata that describes the embeddings; empty without embeddings."""
        found = [
            {"name": each.name, "shape": list(each.values.shape), "digest": each.digest} for each in self.embeddings
        ]
        return {"embeddings": found} if found else {}

    def with_ids(self, ids: list[int]) -> TokenPrompt:
        """Returns the prompt with other ids and the same embeddings; raises `BadInput` if they do not fit together."""
        changed = replace(self, ids=ids)
        count, tokens = int(changed.is_embedding.sum()), sum(each.tokens for each in self.embeddings)
        if count != tokens:
            raise BadInput(
                f"prompt.tokens of the trace has {count} places for embeddings, which are {tokens} tokens long "
                "together; expected a trace of the same prompt"
            )
        return changed


def read_embeddings(embeddings: Sequence[Injected]) -> tuple[Embedding, ...]:
    """Returns the user's embeddings, read and checked; raises `BadInput` if one is invalid."""
    if isinstance(embeddings, (np.ndarray, Embedding, Path, bytes, str)) or not isinstance(embeddings, Sequence):
        raise BadInput(
            f"embeddings is of type {type(embeddings).__name__}; expected a list of them, one for each placeholder"
        )
    return tuple(_checked(each, number) for number, each in enumerate(embeddings, 1))


def _checked(embedding: Any, number: int) -> Embedding:
    if isinstance(embedding, Embedding):
        return embedding
    if isinstance(embedding, (Path, bytes, str)):
        return read_embedding(embedding, name=None if isinstance(embedding, Path) else f"embedding {number}")
    if isinstance(embedding, np.ndarray):
        return embedding_of(embedding, f"embedding {number}")
    if (torch := sys.modules.get("torch")) and isinstance(embedding, torch.Tensor):
        return embedding_of(_array(embedding, number), f"embedding {number}")
    raise BadInput(
        f"embedding {number} is of type {type(embedding).__name__}; expected an array [tokens, hidden], or a Path"
    )


def _array(tensor: Any, number: int) -> np.ndarray:
    """Returns the values of a PyTorch tensor from any device, with 16-bit and 8-bit floats in float32.

    numpy does not have all of these types.
    """
    try:
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
        is_short = tensor.is_floating_point() and tensor.element_size() < 4
        array: np.ndarray = (tensor.float() if is_short else tensor).numpy()
    except Exception as error:  # PyTorch has no common error for tensors that are not arrays
        raise BadInput(
            f"embedding {number} is a tensor that is not an array: {message_of(error, 120)}; expected a dense one"
        ) from error
    return array


def check_placeholders(texts: Sequence[str], placeholder: str, count: int) -> None:
    """Raises `BadInput` unless the texts of a prompt hold `count` placeholders, one for each embedding.

    Args:
        texts: the messages of a conversation, or the single text of a prompt.
    """
    counts = [text.count(placeholder) for text in texts]
    if sum(counts) != count:
        where = "the prompt"
        if len(texts) > 1 and any(counts):
            places = (f"{times} in message {number}" for number, times in enumerate(counts, 1) if times)
            where += f" ({', '.join(places)})"
        aside = "" if any(counts) else f', as in "What is said here: {placeholder}"'
        raise BadInput(mismatch(where, placeholder, sum(counts), count) + aside)


def with_own_placeholder(texts: Sequence[str], usual: str, own: str, count: int) -> list[str]:
    """Returns the texts of a prompt with the model's own placeholder, if they name only the usual one.

    A client that puts embeddings between texts need not know which token the model has for them.

    Args:
        usual: the placeholder of a model that names none.
        own: the model's.
        count: the number of embeddings.
    """
    counts = [sum(text.count(each) for text in texts) for each in (usual, own)]
    renames = usual != own and count > 0 and counts == [count, 0]
    return [text.replace(usual, own) for text in texts] if renames else list(texts)


def mismatch(where: str, placeholder: str, placeholders: int, count: int) -> str:
    """Returns the error message for a prompt whose placeholder count differs from its number of embeddings."""
    count_text = "1 embedding" if count == 1 else f"{count or 'no'} embeddings"
    times = "once" if placeholders == 1 else f"{placeholders} times" if placeholders else "nowhere"
    return f"{where} holds the placeholder {placeholder} {times} and comes with {count_text}; expected one for each"


def injected(ids: Sequence[int], placeholder: int, embeddings: Sequence[Embedding]) -> TokenPrompt:
    """Returns the prompt in which each placeholder is repeated once for each token of its embedding.

    Args:
        ids: with a placeholder for each embedding.
        placeholder: its id.
    """
    lengths = iter([each.tokens for each in embeddings])
    spread = [[number] * next(lengths) if embeddings and number == placeholder else [number] for number in ids]
    return TokenPrompt([number for each in spread for number in each], tuple(embeddings), placeholder)


def check_range(embeddings: Sequence[Embedding], dtype: str) -> None:
    """Raises `BadInput` for values that are infinite in a model's arithmetic.

    Among the supported types, only float16 has a smaller range than float32.
    """
    most = float(np.finfo(np.float16).max)
    for each in embeddings if dtype == "float16" else ():
        if (found := float(np.abs(each.values).max())) > most:
            raise BadInput(
                f"{each.name} holds {found:g}, and the model computes in float16, which ends at {most:g}; open it with "
                "another dtype"
            )
