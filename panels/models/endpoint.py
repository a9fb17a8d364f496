"""The endpoint `/models` for scripts, `gradio_client` and notebooks: the models that other endpoints can use."""

from __future__ import annotations

from typing import Any

import gradio as gr

from panels.models.layout import models_list
from panels.running.parameters import OBJECTS_SCHEMA, endpoint
from panels.running.root import Page
from panels.running.sessions import SessionPool


def build(page: Page, pool: SessionPool) -> None:
    """Adds the endpoint to the page, in the current context."""

    def models() -> list[dict[str, Any]]:
        return models_list(pool.registry)

    with gr.Column(visible=False):
        endpoint(
            page,
            models,
            {},
            "models",
            OBJECTS_SCHEMA,
            "models",
            "Lists all models, and per runtime whether they are ready.",
            {},
            queue=False,
        )
