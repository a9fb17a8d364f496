"""Puts the tabs together. A new tab is one import and one entry in the table."""

from __future__ import annotations

from collections.abc import Callable

import gradio as gr

from panels.inject.layout import endpoint, layout
from panels.models.layout import layout
from panels.parity.layout import endpoint, layout
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.transcribe.layout import endpoint, layout
from panels.widgets.html_block import html_block
from panels.widgets.markup import text
from workbench import __version__

TITLE = "Speech Workbench"

TABS: tuple[tuple[str, str, Callable[[gr.Blocks, SessionPool, gr.Tab], None]], ...] = (
    ("transcribe", "Transcribe", layout.build),
    ("parity", "Parity", layout.build),
    ("inject", "Inject", layout.build),
    ("models", "Models", layout.build),
)

HEADER = f"""<div class="masthead">
<svg viewBox="0 0 44 28" width="44" height="28" aria-hidden="true"><g fill="currentColor">
<rect x="0" y="11" width="3" height="6" rx="1.5"/><rect x="6" y="6" width="3" height="16" rx="1.5"/>
<rect x="12" y="1" width="3" height="26" rx="1.5"/><rect x="18" y="8" width="3" height="12" rx="1.5"/>
<rect x="26" y="5" width="18" height="3" rx="1.5"/><rect x="26" y="12.5" width="13" height="3" rx="1.5"/>
<rect x="26" y="20" width="16" height="3" rx="1.5"/></g></svg>
<div><h1>{TITLE}</h1><p>Speech models side by side</p></div></div>"""

PRIVACY = "Recordings stay on the machine that runs this page, unless a model on another server is chosen."
FOOTER = f'<p class="foot">{TITLE} {text(__version__)} · {PRIVACY}</p>'


def build_page(pool: SessionPool) -> Page:
    """The page with all tabs; `serving.launch` starts it."""
    with Page(title=TITLE, fill_width=True, analytics_enabled=False, delete_cache=(3600, 24 * 3600)) as page:
        html_block(HEADER, elem_id="masthead")
        with gr.Tabs(elem_id="tabs"):
            for key, label, build in TABS:
                with gr.Tab(label, id=key) as tab:
                    build(page, pool, tab)
        endpoint.build(page, pool)
        endpoint.build(page, pool)
        endpoint.build(page, pool)
        html_block(FOOTER)
    return page
