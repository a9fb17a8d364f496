"""The part of a chat message that contains an embedding, as this project's plugin adds it to vLLM's server.

Both the client and the server take its format from here. This file imports neither vllm nor torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.embeddings import ENCODINGS, as_base64, write_embedding
from workbench.families.language.directory import PLACEHOLDER

PART = "embedding"  # the part's type, and the field with its content
DATA, ENCODING, TENSOR = "data", "encoding", "tensor"
FORM = f'{{"type": "{PART}", "{PART}": {{"{DATA}": <base64>, "{ENCODING}": "npy"}}}}'
NOTHING = f"a content part of type {PART} has no {PART}"  # how a part without content is refused
PLACE = ", in the place of "  # stands before the placeholder in that refusal


def embedding_part(embedding: np.ndarray) -> dict[str, Any]:
    """Returns the part for an embedding [tokens, hidden] of any floating-point type; it is sent as float32.

    Raises `BadInput` for invalid values.
    """
    return {"type": PART, PART: {DATA: as_base64(write_embedding(embedding, None, "npy")), ENCODING: "npy"}}


def is_embedding_part(part: Any) -> bool:
    """Returns whether a part of a message contains an embedding, or says so and has none."""
    return isinstance(part, Mapping) and part.get("type") == PART


def stated_placeholder(refusal: str) -> str | None:
    """Returns the model's placeholder for an embedding in a text, from the refusal of a part without content.

    Returns the default placeholder if the refusal names none, and None if the server does not know such parts.
    """
    if NOTHING not in refusal:
        return None
    _, separator, tail = refusal.partition(PLACE)
    try:
        placeholder, _ = json.JSONDecoder().raw_decode(tail) if separator else (PLACEHOLDER, 0)
    except ValueError:
        return PLACEHOLDER
    return placeholder if placeholder and isinstance(placeholder, str) else PLACEHOLDER


def read_part(part: Mapping[str, Any], placeholder: str = PLACEHOLDER) -> tuple[str, str, str | None]:
    """Returns (the base64 data, its encoding, the name of the tensor in it or None) of a part.

    Args:
        placeholder: the placeholder of an embedding in a text; the refusal of a part without content names it.

    Raises `BadInput` for a malformed part.
    """
    fields = part.get(PART)
    if not isinstance(fields, Mapping):
        raise BadInput(f"{NOTHING}; expected {FORM}{PLACE}{json.dumps(placeholder, ensure_ascii=False)}")
    names = (DATA, ENCODING, TENSOR)
    for name in fields:
        if name not in names:
            raise BadInput(f"the {PART} has the field {name!r:.80}; expected {', '.join(names)}")
    data, encoding, tensor = (fields.get(name) for name in names)
    if not isinstance(data, str) or not data:
        raise BadInput(f"the {PART} has no {DATA}; expected {FORM}")
    if encoding not in ENCODINGS:
        raise BadInput(f"the {ENCODING} of the {PART} is {encoding!r:.80}; expected one of {', '.join(ENCODINGS)}")
    if tensor is not None and not isinstance(tensor, str):
        raise BadInput(f"the {TENSOR} of the {PART} is {tensor!r:.80}; expected the name of one of those in the file")
    return data, encoding, tensor
