"""The endpoint `/inject` for `gradio_client` and notebooks. It computes the same as the Inject tab."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from panels.inject.run import Answer, prepare, run
from panels.running.choices import ModelOnRuntime
from panels.running.parameters import FILES, OBJECT, OBJECTS_SCHEMA, TEXT, UPLOAD, Parameter, endpoint
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING
from panels.transcribe.endpoint import MODELS, OPTIONS, RUNTIME_OF_MODELS, first_of
from panels.widgets.snippets import File
from workbench.core.visitors import current_stop
from workbench.embeddings import read_embedding
from workbench.families.language.directory import PLACEHOLDER

INJECT = {
    "embeddings": Parameter(
        "embeddings",
        f"One file or a list of them, in the order of their placeholders (.npy, .npz, .pt, .safetensors): {UPLOAD}.",
        FILES,
    ),
    "models": MODELS,
    "prompt": Parameter("prompt", f"The text, with {PLACEHOLDER} where each embedding goes.", TEXT, PLACEHOLDER),
    "runtime": RUNTIME_OF_MODELS,
    "options": OPTIONS,
    "tensors": Parameter(
        "names of arrays",
        'The name of the array to use, for a file that has several: an object such as {"probe.npz": "layer_3"}, or '
        "JSON text of one.",
        OBJECT,
        {},
    ),
}


def build(page: Page, pool: SessionPool) -> None:
    """Adds the endpoint to the page, in the current context."""

    def inject(
        embeddings: list[str],
        models: list[str],
        prompt: str,
        runtime: str,
        options: dict[str, Any],
        tensors: dict[str, Any],
    ) -> list[dict[str, Any]]:
        return injected(pool, embeddings, models, prompt, runtime, options, tensors)

    with gr.Column(visible=False):
        endpoint(
            page,
            inject,
            INJECT,
            "answers",
            OBJECTS_SCHEMA,
            "inject",
            "Runs embeddings through language models; gives one object for each model.",
            {
                "embeddings": File("embedding.npy", served=False),
                "models": first_of(pool.registry, "generate"),
                "prompt": f"What is {PLACEHOLDER}?",
                "runtime": "pytorch",
                "options": {"max_new_tokens": 16},
            },
            **COMPUTING,
        )


def injected(
    pool: SessionPool,
    embeddings: Sequence[str],
    models: Sequence[str],
    prompt: str,
    runtime: str = "pytorch",
    options: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Runs the prompt with its embeddings on the models; returns a JSON object for each, with the fields of a
    generation.

    A model that failed has `model`, `runtime`, `quantization` and `error` instead. A model may name its runtime and a
    quantisation, as in `demo/qwen3|gguf|q8_0`.

    Args:
        embeddings: paths of files.
        tensors: the array to take from a file with several, by the file's name.

    Raises `BadInput` for errors in the request as a whole.
    """
    array_names = tensors or {}
    pool.guard.check_arrays(embeddings)
    vectors = [
        read_embedding(Path(path), tensor=array_names.get(Path(path).name), name=Path(path).name) for path in embeddings
    ]
    cells = [model if "|" in model else ModelOnRuntime(model, runtime).value for model in models]
    rows: Sequence[Answer] = ()
    for answers in run(pool, prepare(pool.registry, prompt, vectors, cells, options or {}), current_stop()):
        rows = answers.rows
    return [answer_dict(row) for row in rows]


def answer_dict(row: Answer) -> dict[str, Any]:
    """Returns a finished answer as plain JSON values."""
    model = {"model": row.cell.model, "runtime": row.cell.runtime, "quantization": row.cell.quantization or None}
    if row.generation is None:
        return {**model, "error": row.error or "the run was stopped before"}
    return {**json.loads(row.generation.to_json()), **model}
