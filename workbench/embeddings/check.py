"""Checks whether embeddings fit a language model: its width, and the space left in its context. Knows no models."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.core.errors import BadInput
from workbench.embeddings.embedding import Embedding


def check_embeddings(embeddings: Sequence[Embedding], hidden: int, room: int, where: str) -> None:
    """Raises `BadInput` unless a model can take the embeddings.

    Args:
        embeddings: in their order in the prompt.
        hidden: the model's width.
        room: positions of its context that are left for all embeddings together.
        where: the model's name, for messages.
    """
    for number, each in enumerate(embeddings, 1):
        if each.hidden != hidden:
            raise BadInput(
                f"{_called(each, number, len(embeddings))} is {each.hidden} wide, its shape is {each.shape}; {where} "
                f"expects vectors of {hidden}"
            )
    tokens = sum(each.tokens for each in embeddings)
    if tokens <= room:
        return
    if len(embeddings) == 1:
        raise BadInput(
            f"{_called(embeddings[0], 1, 1)} is {tokens} tokens long; the context of {where} has room for "
            f"{max(room, 0)} beside the text and max_new_tokens"
        )
    lengths = " + ".join(str(each.tokens) for each in embeddings)
    raise BadInput(
        f"the {len(embeddings)} embeddings are {lengths} = {tokens} tokens long; the context of {where} has room for "
        f"{max(room, 0)} beside the text and max_new_tokens"
    )


def _called(embedding: Embedding, number: int, count: int) -> str:
    name = "" if embedding.name in ("embedding", f"embedding {number}") else embedding.name  # these came without one
    if count == 1:
        return f"the embedding {name}".rstrip()
    return f"embedding {number} of {count}" + (f" ({name})" if name else "")
