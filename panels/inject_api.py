"""The endpoint `/inject` for `gradio_client` and notebooks. What it computes is what the Inject tab computes."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from panels.api import endpoint, json_object
from panels.cells import Cell
from panels.inject_runs import Answer, prepare, run
from panels.pool import SessionPool
from workbench.embeddings import read_embedding
from workbench.families.language import PLACEHOLDER


def build(pool: SessionPool) -> None:
    """Adds the endpoint to the page in whose context it is called."""

    def inject(
        embeddings: list[str], models: list[str], prompt: str, runtime: str, options: str, tensors: str
    ) -> list[dict[str, Any]]:
        return injected(pool, embeddings or [], models or [], prompt, runtime, options, tensors)

    ids = [card.id for card in pool.registry.cards() if "generate" in card.tasks]
    with gr.Column(visible=False):
        inputs = [
            gr.File(file_count="multiple", label="embedding files, in the order of their placeholders"),
            gr.Dropdown(ids, value=[], multiselect=True, allow_custom_value=True, label="ids of models"),
            gr.Textbox("", label=f"prompt, with {PLACEHOLDER} where each embedding goes"),
            gr.Textbox("pytorch", label="runtime"),
            gr.Textbox("{}", label="options of the models, a JSON object"),
            gr.Textbox("{}", label="names of arrays by the names of files that have several, a JSON object"),
        ]
        endpoint(
            inject, inputs, "answers", "inject", "Runs embeddings through language models; one object for each model."
        )


def injected(
    pool: SessionPool,
    embeddings: Sequence[str],
    models: Sequence[str],
    prompt: str,
    runtime: str = "pytorch",
    options: str = "{}",
    tensors: str = "{}",
) -> list[dict[str, Any]]:
    """Runs the prompt with the embeddings in it on the models: a JSON object for each, with the fields of a generation.

    One that failed has `model`, `runtime`, `quantization` and `error` instead. A model may name its runtime and a
    quantisation, as in `demo/qwen3|gguf|q8_0`.

    Args:
        embeddings: paths of files.
        options: a JSON object.
        tensors: which array to take of a file that has several, by the file's name, a JSON object.

    Raises `BadInput` for what is wrong with the request as a whole.
    """
    given = json_object(options, "the options", '{"max_new_tokens": 64}')
    named = json_object(tensors, "the names of arrays", '{"probe.npz": "layer_3"}')
    read = [read_embedding(Path(path), tensor=named.get(Path(path).name), name=Path(path).name) for path in embeddings]
    cells = [model if "|" in model else Cell(model, runtime).value for model in models]
    rows: Sequence[Answer] = ()
    for answers in run(pool, prepare(pool.registry, prompt, read, cells, given), threading.Event()):
        rows = answers.rows
    return [answer_dict(row) for row in rows]


def answer_dict(row: Answer) -> dict[str, Any]:
    """A finished answer as plain JSON values."""
    who = {"model": row.cell.model, "runtime": row.cell.runtime, "quantization": row.cell.quantization or None}
    if row.generation is None:
        return {**who, "error": row.error or "the run was stopped before"}
    return {**json.loads(row.generation.to_json()), **who}
