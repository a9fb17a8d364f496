"""The endpoint `/evaluate` for `gradio_client` and notebooks: models over a corpus, with intervals and differences.

It computes the same as the Evaluate tab and `workbench evaluate`. It reads only uploaded files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from panels.evaluate.events import EvaluateActions
from panels.evaluate.run import run
from panels.running.choices import ModelOnRuntime
from panels.running.parameters import FILES, OBJECT_SCHEMA, SWITCH, TEXT, UPLOAD, Parameter, endpoint
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING
from panels.transcribe.endpoint import MODELS, RUNTIME_OF_MODELS, first_of
from workbench.core.errors import BadInput
from workbench.core.visitors import current_stop
from workbench.evaluation.report.exports import table_rows
from workbench.text.normalisers import NORMALISERS

MAX_ROWS = 20_000  # rows of one answer; the command and the report have no such limit

EVALUATE = {
    "models": MODELS,
    "files": Parameter(
        "corpus",
        "A manifest with its recordings, recordings with a text file for each, Parquet files of one split, or a .zip "
        f"of any of these: {UPLOAD}. "
        "Without files, the sample recordings of the workbench.",
        FILES,
    ),
    "runtime": RUNTIME_OF_MODELS,
    "normaliser": Parameter(
        "normaliser", f"It changes both texts before they are compared: {', '.join(NORMALISERS)}.", TEXT, "basic"
    ),
    "limit": Parameter("limit", "The number of recordings, as text; empty for all.", TEXT, ""),
    "rows": Parameter("rows", f"Whether the answer has every result too, at most {MAX_ROWS} of them.", SWITCH, False),
    "transcripts": Parameter(
        "transcripts",
        f"What other programs have written, to stand beside the models: {UPLOAD}. One file for each program, a .trn, a "
        ".ctm, text of Kaldi, .csv, .tsv or .jsonl; its name is the program's.",
        FILES,
    ),
}


def build(page: Page, pool: SessionPool) -> None:
    """Adds the endpoint to the page, in the current context."""

    def evaluate(
        models: list[str],
        files: list[str] | None = None,
        runtime: str = "pytorch",
        normaliser: str = "basic",
        limit: str = "",
        rows: bool = False,
        transcripts: list[str] | None = None,
    ) -> dict[str, Any]:
        return evaluated(
            EvaluateActions(pool), models, files or [], runtime, normaliser, limit, rows, transcripts or []
        )

    with gr.Column(visible=False):
        endpoint(
            page,
            evaluate,
            EVALUATE,
            "evaluation",
            OBJECT_SCHEMA,
            "evaluate",
            "Runs models over a corpus; gives error rates with intervals, speed, and whether differences are real.",
            {"models": first_of(pool.registry, "transcribe")},
            **COMPUTING,
        )


def evaluated(
    actions: EvaluateActions,
    models: Sequence[str],
    files: list[str],
    runtime: str = "pytorch",
    normaliser: str = "basic",
    limit: str = "",
    rows: bool = False,
    transcripts: Sequence[str] = (),
) -> dict[str, Any]:
    """Evaluates models: returns `models`, `pairs` and `intervals` of the report, `skipped`, `notes`, and maybe `rows`.

    Raises `BadInput` for errors in the request, and the errors of a run.
    """
    cells = [model if "|" in model else ModelOnRuntime(model, runtime or "pytorch").value for model in models]
    job = actions.job(files, "", cells, normaliser or "basic", limit, transcripts)
    for step in run(actions.pool.registry, job, current_stop(), actions.compute, actions.pool.guard):
        if step.results is not None:
            try:
                if step.time_limit:
                    raise BadInput(
                        f"the evaluation took longer than the {step.time_limit} that one run may take here; set a "
                        "lower limit, or name fewer models"
                    )
                columns = step.results.columns
                found = {**step.results.figures.to_dict(), "skipped": [dict(each) for each in columns.skipped]}
                found["notes"] = list(step.notes)
                listed = [row for row, _ in zip(table_rows(columns), range(MAX_ROWS))] if rows else []
                return found | ({"rows": listed} if rows else {})
            finally:
                step.results.close()
    raise BadInput("the evaluation was stopped before it had any result")
