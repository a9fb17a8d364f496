"""The endpoint `/transcribe` for scripts, `gradio_client` and notebooks; others are in the folders of their tabs.

Its inputs and outputs are on no tab. It computes the same as the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from panels.running.choices import ModelOnRuntime
from panels.running.parameters import FILES, OBJECT, OBJECTS_SCHEMA, TEXT, TEXTS, UPLOAD, Parameter, endpoint, read_file
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING
from panels.transcribe.job import Row, prepare
from panels.transcribe.run import run
from panels.widgets.engine_inputs import RUNTIME, SETTINGS, check_settings
from panels.widgets.samples import read_samples
from panels.widgets.snippets import File
from workbench.core.runtimes import RUNTIMES
from workbench.core.visitors import current_stop
from workbench.registry.registry import Registry
from workbench.text.exports import FORMATS
from workbench.text.normalisers import NORMALISERS
from workbench.text.rates import Score

MODELS = Parameter(
    "models",
    "The id of a model or a list of them, as /models lists them. One may name its runtime and a quantisation too, as "
    "in demo/sensevoice|gguf|q8_0.",
    TEXTS,
)
RUNTIME_OF_MODELS = Parameter(
    "runtime", f"The runtime of models that name none: {', '.join(RUNTIMES)}.", TEXT, "pytorch"
)
OPTIONS = Parameter(
    "options",
    'Options of the models, an object such as {"language": "en"}, or JSON text of one; each model gets those it has. '
    f"The command `workbench options MODEL` lists them. A file is given like a recording, {UPLOAD}.",
    OBJECT,
    {},
)
TRANSCRIBE = {
    "audio": Parameter("recordings", f"One recording or a list of them, as files: {UPLOAD}.", FILES),
    "models": MODELS,
    "runtime": RUNTIME_OF_MODELS,
    "options": OPTIONS,
    "reference": Parameter(
        "reference text",
        "The reference text, one line for each recording; with it, the result has error rates.",
        TEXT,
        "",
    ),
    "normaliser": Parameter(
        "normaliser", f"It changes both texts before they are compared: {', '.join(NORMALISERS)}.", TEXT, "basic"
    ),
    "engine": Parameter(
        "engine",
        'Settings of vLLM engines, an object such as {"max_length": 4096}, or JSON text of one: '
        f"{', '.join(spec.name for spec in SETTINGS)}.",
        OBJECT,
        {},
    ),
}


def build(page: Page, pool: SessionPool) -> None:
    """Adds the endpoint to the page, in the current context."""

    def transcribe(
        audio: list[str],
        models: list[str],
        runtime: str,
        options: dict[str, Any],
        reference: str,
        normaliser: str,
        engine: dict[str, Any],
    ) -> list[dict[str, Any]]:
        return transcripts(pool, audio, models, runtime, options, reference, normaliser, engine)

    with gr.Column(visible=False):
        endpoint(
            page,
            transcribe,
            TRANSCRIBE,
            "transcripts",
            OBJECTS_SCHEMA,
            "transcribe",
            "Transcribes recordings with models; gives one object for each recording and model.",
            {"audio": sample(), "models": first_of(pool.registry, "transcribe"), "runtime": "pytorch", "options": {}},
            **COMPUTING,
        )


def sample() -> File:
    """Returns the recording for the example programs on the page."""
    listed = read_samples()
    return File(listed[0].path.name) if listed else File("recording.wav", served=False)


def first_of(registry: Registry, task: str) -> str:
    """Returns the id of the first model for the task, for the example programs on the page."""
    return next((card.id for card in registry.cards() if task in card.tasks), "")


def transcripts(
    pool: SessionPool,
    recordings: Sequence[str],
    models: Sequence[str],
    runtime: str = "pytorch",
    options: Mapping[str, Any] | None = None,
    reference: str = "",
    normaliser: str = "basic",
    engine: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Runs the models over the recordings; returns a JSON object for each recording and model, recording by recording.

    Each has the fields of a transcript (`model`, `runtime`, `text`, `language`, `segments`, `tokens`, `audio_seconds`,
    `load_seconds`, `compute_seconds`), and `quantization` (None if the runtime uses the checkpoint unchanged), `file`,
    `tags`, `notes`, `memory_bytes`, `weight_bytes` and `score` (None without a reference). One that failed has `model`,
    `runtime`, `quantization`, `file` and `error` instead. A model may name its runtime and a quantisation, as in
    `demo/sensevoice|gguf|q8_0`. Raises `BadInput` for errors in the request as a whole.
    """
    settings = {RUNTIME: check_settings(engine or {})}
    pool.guard.check_settings(settings[RUNTIME])
    pool.guard.check_options(options or {})
    options = {name: _uploaded(name, value) for name, value in (options or {}).items()}
    cells = [model if "|" in model else ModelOnRuntime(model, runtime).value for model in models]
    job = prepare(pool.registry, recordings, cells, reference, normaliser, options, None, settings)
    rows: Sequence[Row] = ()
    for state in run(pool, job, current_stop()):
        rows = state.rows
    return [row_dict(row) for row in rows]


def _uploaded(name: str, value: Any) -> Any:
    """Returns the value of an option; for an uploaded file, its path."""
    return read_file(value, f"option {name}") if isinstance(value, Mapping) else value


def row_dict(row: Row) -> dict[str, Any]:
    """Returns a finished row as plain JSON values."""
    cell = row.cell
    who = {"model": cell.model, "runtime": cell.runtime, "quantization": cell.quantization or None}
    if row.transcript is None or row.status != "done":
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
    """Returns a score as plain JSON values; rates are fractions, or None if undefined."""
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
