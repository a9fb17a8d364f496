"""The Chat tab: the place where its scripts draw it, and its addresses on the server.

The scripts in assets/chat draw the tab and keep the conversations in the browser. They talk to `live` and `routes`.
"""

from __future__ import annotations

import gradio as gr

from panels.chat.routes import chat_routes
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.widgets.html_block import scripted_html

LOADING = '<div class="chat"><p class="muted small loading" role="status">Opening the chat</p></div>'


def build(page: Page, pool: SessionPool, tab: gr.Tab) -> None:
    """Builds the tab in the current context."""
    page.routes += chat_routes(pool)
    scripted_html("chat/start.js", LOADING, elem_id="chat-page")
