"""Endpoints for scripts, `gradio_client` and notebooks: `/transcribe` and `/models`; others are beside their tabs.

Their inputs and outputs stand on no tab. What they compute is what the page computes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from panels.cells import Cell
from panels.guard import guarded
from panels.models import models_list
from panels.pool import SessionPool
from panels.runs import Row, prepare, run
from panels.settings import RUNTIME, check_settings
from panels.transcribe import COMPUTE, RUNS_AT_ONCE
from workbench.errors import BadInput
from workbench.exports import FORMATS
from workbench.scoring import Score


def build(pool: SessionPool) -> None:
    """Adds the endpoints to the page in whose context it is called."""

    def transcribe(
        audio: list[str], models: list[str], runtime: str, options: str, reference: str, normaliser: str, engine: str
    ) -> list[dict[str, Any]]:
        return transcripts(pool, audio or [], models or [], runtime, options, reference, normaliser, engine)

    def models() -> list[dict[str, Any]]:
        return models_list(pool.registry)

    ids = [card.id for card in pool.registry.cards() if "transcribe" in card.tasks]
    with gr.Column(visible=False):
        inputs = [
            gr.File(file_count="multiple", label="audio files"),
            gr.Dropdown(ids, value=[], multiselect=True, allow_custom_value=True, label="ids of models"),
            gr.Textbox("pytorch", label="runtime"),
            gr.Textbox("{}", label="options of the models, a JSON object"),
            gr.Textbox("", label="reference text, one line for each of several recordings"),
            gr.Textbox("basic", label="normaliser"),
            gr.Textbox("{}", label="settings of vLLM engines, a JSON object"),
        ]
        endpoint(
            transcribe,
            inputs,
            "transcripts",
            "transcribe",
            "Transcribes recordings with models; one object for each recording and model.",
        )
    gr.api(
        guarded(models),
        api_name="models",
        api_description="All models, and per runtime whether they are ready.",
        queue=False,
    )


def endpoint(
    function: Callable[..., Any], inputs: Sequence[gr.components.Component], output: str, name: str, description: str
) -> None:
    """Adds a computing endpoint of that name, which takes what the inputs hold and gives JSON, called `output`."""
    gr.Button().click(
        guarded(function),
        inputs,
        gr.JSON(label=output),
        api_name=name,
        api_description=description,
        concurrency_limit=RUNS_AT_ONCE,
        concurrency_id=COMPUTE,
    )


def transcripts(
    pool: SessionPool,
    recordings: Sequence[str],
    models: Sequence[str],
    runtime: str = "pytorch",
    options: str = "{}",
    reference: str = "",
    normaliser: str = "basic",
    engine: str = "{}",
) -> list[dict[str, Any]]:
    """Runs the models over the recordings: a JSON object for each recording and model, recording by recording.

    Each has the fields of a transcript (`model`, `runtime`, `text`, `language`, `segments`, `tokens`, `audio_seconds`,
    `load_seconds`, `compute_seconds`), and `quantization` (None where the runtime takes the checkpoint as it is),
    `file`, `tags`, `notes`, `memory_bytes`, `weight_bytes` and `score` (None without a reference). One that failed has
    `model`, `runtime`, `quantization`, `file` and `error` instead. A model may name its runtime and a quantisation, as
    in `demo/sensevoice|gguf|q8_0`. Raises `BadInput` for what is wrong with the request as a whole.
    """
    given = json_object(options, "the options", '{"itn": true}')
    settings = {RUNTIME: check_settings(json_object(engine, "the settings", '{"max_length": 4096}'))}
    cells = [model if "|" in model else Cell(model, runtime).value for model in models]
    job = prepare(pool.registry, recordings, cells, reference, normaliser, given, None, settings)
    rows: Sequence[Row] = ()
    for board in run(pool, job, threading.Event()):
        rows = board.rows
    return [row_dict(row) for row in rows]


def json_object(written: str, what: str, example: str) -> dict[str, Any]:
    """What a script wrote as a JSON object; raises `BadInput` that says what it is of and gives an example."""
    try:
        given = json.loads(written or "{}")
    except ValueError as error:
        raise BadInput(f"{what} are not JSON ({error}); expected an object such as {example}") from error
    if not isinstance(given, dict):
        raise BadInput(f"{what} are {written[:40]}; expected a JSON object such as {example}")
    return given


def row_dict(row: Row) -> dict[str, Any]:
    """A finished row as plain JSON values."""
    cell = row.cell
    who = {"model": cell.model, "runtime": cell.runtime, "quantization": cell.quantization or None}
    if row.transcript is None:
        return {**who, "file": row.recording, "error": row.error or "the run was stopped before"}
    return {
        **json.loads(FORMATS["json"].write(row.transcript)),
        **who,
        "file": row.recording,
        "tags": dict(row.transcript.tags),
        "notes": list(row.transcript.notes),
        "memory_bytes": row.transcript.memory_bytes,
        "weight_bytes": row.weight_bytes,
        "score": score_dict(row.score) if row.score else None,
    }


def score_dict(score: Score) -> dict[str, Any]:
    """A score as plain JSON values; rates are fractions, None where they are not defined."""
    counts = score.counts
    return {
        "name": score.name,
        "rate": score.rate,
        "wer": score.wer,
        "cer": score.cer,
        "hits": counts.hits,
        "substitutions": counts.substitutions,
        "deletions": counts.deletions,
        "insertions": counts.insertions,
        "normaliser": score.normaliser,
        "normaliser_version": score.normaliser_version,
        "reference": score.reference,
        "hypothesis": score.hypothesis,
    }
