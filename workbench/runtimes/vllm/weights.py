"""Checks the weights of a plain language model's directory before an engine loads them.

vLLM leaves a missing tensor uninitialised, and serves the results.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from workbench.core.errors import BadInput, message_of
from workbench.formats.weight_files import check_downloaded

Shapes = dict[str, tuple[int, ...]]
EMBEDDINGS = "model.embed_tokens.weight"
OUTPUT = "lm_head.weight"  # may be missing if it equals the embeddings
COMPARED = 1024  # rows of two matrices that are compared at a time


def check_weights(directory: Path) -> None:
    """Raises `BadInput` for missing, extra or misshapen tensors, or a damaged file, and for an output matrix that vLLM
    would replace by the embeddings.

    Only names and shapes are read, and the values of two matrices that should be equal. A directory with weights in
    torch's own files is not checked, as vLLM reads those completely.
    """
    stored_shapes = _stored_shapes(directory)
    if not stored_shapes:
        return
    expected_shapes, is_tied = _expected_shapes(directory)
    missing = [name for name in expected_shapes if name not in stored_shapes and not (is_tied and name == OUTPUT)]
    extra = [name for name in stored_shapes if name not in expected_shapes and not name.endswith("rotary_emb.inv_freq")]
    for names, verb in ((missing, "lacks"), (extra, "has")):
        if names:
            more_note = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            which = "which its config.json calls for" if verb == "lacks" else "which its network does not have"
            raise BadInput(f"{directory.name} {verb} tensor {names[0]}{more_note}, {which}")
    for name, shape in stored_shapes.items():
        if name in expected_shapes and expected_shapes[name] != shape:
            raise BadInput(
                f"{directory.name}: tensor {name} has shape {shape}; its config.json calls for {expected_shapes[name]}"
            )
    if is_tied and {OUTPUT, EMBEDDINGS} <= stored_shapes.keys() and not _are_equal(directory):
        raise BadInput(
            f"the tensors {OUTPUT} and {EMBEDDINGS} of {directory.name} differ, and its config.json says that they are "
            "equal, which vLLM takes for granted; expected tie_word_embeddings false there"
        )


def _are_equal(directory: Path) -> bool:
    """Returns whether the output matrix and the embeddings in the directory's files are equal."""
    import torch
    from safetensors import safe_open

    with contextlib.ExitStack() as stack:
        slices: dict[str, Any] = {}
        for path in sorted(directory.glob("model*.safetensors")):
            file = stack.enter_context(safe_open(str(path), framework="pt"))
            slices |= {name: file.get_slice(name) for name in {OUTPUT, EMBEDDINGS} & {*file.keys()}}
        output, embeddings = slices[OUTPUT], slices[EMBEDDINGS]
        return all(
            torch.equal(output[first : first + COMPARED], embeddings[first : first + COMPARED])
            for first in range(0, output.get_shape()[0], COMPARED)
        )


def _stored_shapes(directory: Path) -> Shapes:
    """Returns the names and shapes of the tensors in the directory's safetensors files."""
    from safetensors import SafetensorError, safe_open

    stored_shapes: Shapes = {}
    for path in sorted(directory.glob("model*.safetensors")):
        check_downloaded(path, f"{directory.name}/{path.name}")
        try:
            with safe_open(str(path), framework="numpy") as file:
                stored_shapes.update({name: tuple(file.get_slice(name).get_shape()) for name in file.keys()})  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise BadInput(
                f"{directory.name}/{path.name} ({path.stat().st_size} bytes) is truncated, damaged or no safetensors "
                f"file: {error}"
            ) from error
    return stored_shapes


def _expected_shapes(directory: Path) -> tuple[Shapes, bool]:
    """Returns the names and shapes of the configuration's network in transformers, and whether its output matrix is its
    embeddings.
    """
    import torch
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(str(directory), local_files_only=True, trust_remote_code=False)
        network_class: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
        with torch.device("meta"):
            network = network_class(config)
    except Exception as error:  # its readers raise many kinds
        raise BadInput(f"{directory.name}/config.json describes no network: {message_of(error)}") from error
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    return shapes, bool(config.tie_word_embeddings)
