"""The part of a chat message that holds an embedding, as our plugin teaches vLLM's server to read it.

Whoever writes a request and the server itself take its form from here. It imports neither vllm nor torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.embeddings import ENCODINGS, as_base64, write_embedding
from workbench.families.language import PLACEHOLDER

PART = "embedding"  # the part's type, and the field that holds what follows
DATA, ENCODING, TENSOR = "data", "encoding", "tensor"
FORM = f'{{"type": "{PART}", "{PART}": {{"{DATA}": <base64>, "{ENCODING}": "npy"}}}}'
NOTHING = f"a content part of type {PART} has no {PART}"  # how one that holds nothing is refused
PLACE = ", in the place of "  # before the placeholder, in that refusal


def embedding_part(embedding: np.ndarray) -> dict[str, Any]:
    """The part for an embedding [tokens, hidden] of any floating point, which travels in float32.

    Raises `BadInput` for values that are none.
    """
    return {"type": PART, PART: {DATA: as_base64(write_embedding(embedding, None, "npy")), ENCODING: "npy"}}


def placeholder_told(refusal: str) -> str | None:
    """What stands in a text where an embedding goes, as the refusal of a part that holds nothing says.

    The usual one where it does not say; None for the refusal of a server that knows no such parts.
    """
    if NOTHING not in refusal:
        return None
    _, said, written = refusal.partition(PLACE)
    try:
        found, _ = json.JSONDecoder().raw_decode(written) if said else (PLACEHOLDER, 0)
    except ValueError:
        return PLACEHOLDER
    return found if found and isinstance(found, str) else PLACEHOLDER


def read_part(part: Mapping[str, Any], placeholder: str = PLACEHOLDER) -> tuple[str, str, str | None]:
    """(the base64 data, its encoding, the name of the tensor in it where it names one) of a part.

    Args:
        placeholder: what stands in a text where an embedding goes, which the refusal of a part that holds nothing says.

    Raises `BadInput` for one of another form.
    """
    given = part.get(PART)
    if not isinstance(given, Mapping):
        raise BadInput(f"{NOTHING}; expected {FORM}{PLACE}{json.dumps(placeholder, ensure_ascii=False)}")
    known = (DATA, ENCODING, TENSOR)
    for name in given:
        if name not in known:
            raise BadInput(f"the {PART} has the field {name!r:.80}; expected {', '.join(known)}")
    data, encoding, tensor = (given.get(name) for name in known)
    if not isinstance(data, str) or not data:
        raise BadInput(f"the {PART} has no {DATA}; expected {FORM}")
    if encoding not in ENCODINGS:
        raise BadInput(f"the {ENCODING} of the {PART} is {encoding!r:.80}; expected one of {', '.join(ENCODINGS)}")
    if tensor is not None and not isinstance(tensor, str):
        raise BadInput(f"the {TENSOR} of the {PART} is {tensor!r:.80}; expected the name of one of those in the file")
    return data, encoding, tensor
