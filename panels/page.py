"""Assembles the tabs. A new tab is one import and one entry in the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import gradio as gr

from panels.chat import endpoint as chat_endpoint
from panels.chat import layout as chat
from panels.decode import endpoint as decode_endpoint
from panels.decode import layout as decode
from panels.evaluate import endpoint as evaluate_endpoint
from panels.evaluate import layout as evaluate
from panels.inject import endpoint as inject_endpoint
from panels.inject import layout as inject
from panels.models import endpoint as models_endpoint
from panels.models import layout as models
from panels.parity import endpoint as parity_endpoint
from panels.parity import layout as parity
from panels.running.root import Page
from panels.running.run_store import period_of, usual_store
from panels.running.sessions import SessionPool
from panels.transcribe import endpoint as transcribe_endpoint
from panels.transcribe import layout as transcribe
from panels.visualise import endpoint as visualise_endpoint
from panels.visualise import layout as visualise
from panels.widgets.html_block import html_block
from panels.widgets.markup import text
from workbench import __version__
from workbench.core.errors import BadInput
from workbench.serving.admission.guard import Guard
from workbench.serving.routes.api import api_routes
from workbench.serving.service import Service

TITLE = "Speech Workbench"


class Tab(NamedTuple):
    """One tab: its key in the page's address, its title, and the functions that add it and its endpoint."""

    key: str
    label: str
    build: Callable[[Page, SessionPool, gr.Tab], None]
    endpoint: Callable[[Page, SessionPool], None] | None = None


TABS = (
    Tab("transcribe", "Transcribe", transcribe.build, transcribe_endpoint.build),
    Tab("parity", "Parity", parity.build, parity_endpoint.build),
    Tab("chat", "Chat", chat.build, chat_endpoint.build),
    Tab("decode", "Decode", decode.build, decode_endpoint.build),
    Tab("visualise", "Visualise", visualise.build, visualise_endpoint.build),
    Tab("evaluate", "Evaluate", evaluate.build, evaluate_endpoint.build),
    Tab("inject", "Inject", inject.build, inject_endpoint.build),
    Tab("models", "Models", models.build),
)

HEADER = f"""<div class="masthead">
<svg viewBox="0 0 44 28" width="44" height="28" aria-hidden="true"><g fill="currentColor">
<rect x="0" y="11" width="3" height="6" rx="1.5"/><rect x="6" y="6" width="3" height="16" rx="1.5"/>
<rect x="12" y="1" width="3" height="26" rx="1.5"/><rect x="18" y="8" width="3" height="12" rx="1.5"/>
<rect x="26" y="5" width="18" height="3" rx="1.5"/><rect x="26" y="12.5" width="13" height="3" rx="1.5"/>
<rect x="26" y="20" width="16" height="3" rx="1.5"/></g></svg>
<div><h1>{TITLE}</h1><p>Speech models side by side</p></div></div>"""

OPEN_ADDRESS = "() => workbenchAddress.open(true)"  # from assets/address.js: opens the tab that the address names
PRIVACY = "Recordings stay on the machine that runs this page, unless a model on another server is chosen."


def footer(guard: Guard) -> str:
    """Returns the footer, which names the mode in which the page runs."""
    limits = guard.limits
    mode = (
        f"Public mode: recordings of at most {limits.audio_minutes:g} minutes and {limits.file_mb} MB; "
        f"each visitor may have {limits.running_per_visitor} calls running and {limits.waiting_per_visitor} waiting; "
        f"the server removes uploaded files after {period_of(limits.upload_hours)}."
        if guard.public
        else "Local mode: for the owner of this machine."
    )
    return f'<p class="foot" id="mode">{TITLE} {text(__version__)} · {PRIVACY} · {text(mode)}</p>'


def chosen_tabs(names: str | None) -> tuple[Tab, ...]:
    """Returns the tabs with these keys, in the page's order. Commas separate the keys; None means all tabs.

    Raises `BadInput` for a key that no tab has.
    """
    if names is None:
        return TABS
    keys = [each.strip().lower() for each in names.split(",")]
    unknown = [each for each in keys if each not in {tab.key for tab in TABS}]
    if unknown:
        raise BadInput(f"there is no tab {unknown[0][:40]!r}; the tabs are {', '.join(tab.key for tab in TABS)}")
    return tuple(tab for tab in TABS if tab.key in keys)


def build_page(pool: SessionPool, tabs: Sequence[Tab] = TABS) -> Page:
    """Returns the page with these tabs and their endpoints; `serving.launch` starts it."""
    removal = (3600, round(3600 * pool.guard.limits.upload_hours))  # seconds: how often, and of what age
    with Page(title=TITLE, fill_width=True, analytics_enabled=False, delete_cache=removal) as page:
        page.guard, page.runs = pool.guard, usual_store(pool.guard.public)
        html_block(HEADER, elem_id="masthead")
        with gr.Tabs(elem_id="tabs", overflow_behavior="wrap"):  # a phone shows all of them
            for each in tabs:
                with gr.Tab(each.label, id=each.key) as tab:
                    each.build(page, pool, tab)
        models_endpoint.build(page, pool)  # with any tabs: other endpoints take the models that it lists
        for each in tabs:
            if each.endpoint is not None:
                each.endpoint(page, pool)
        page.service = Service(pool)
        page.routes += api_routes(page.service)
        html_block(footer(pool.guard))
        page.load(None, None, None, js=OPEN_ADDRESS, api_visibility="private")
    page.hide_progress_from_outputs()
    return page
