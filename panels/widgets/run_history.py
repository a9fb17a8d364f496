"""The list of a visitor's earlier runs of a tab, which the browser keeps; its behaviour is in assets/."""

from __future__ import annotations

import time
from typing import Any

import gradio as gr

from panels.running.run_store import period_of
from workbench.registry.sources import assets

# Asks for the run that the address names, if it names one. It waits, as Gradio builds most tabs when they are opened.
FOLLOW = """async () => {{
  const there = () => (window.workbenchHistory || {{}})[{tab!r}];
  while (!there() && location.hash.startsWith('#{tab}?')) await new Promise((done) => setTimeout(done, 50));
  there()?.();
}}"""


def run_history(tab: str, hours: float, **settings: Any) -> gr.HTML:
    """Returns the list; it triggers `restore` with the key of a `run` that a link names.

    Args:
        tab: the tab's name in the page's address.
        hours: how long the server keeps a run.
    """
    script = (assets() / "history.js").read_text(encoding="utf-8")
    return gr.HTML(
        history_value(tab, hours),
        html_template='<div class="history"></div>',
        js_on_load=script,
        apply_default_css=False,
        elem_classes="maybe",  # it takes no room while there are no runs
        **settings,
    )


def follow_address(tab: str) -> str:
    """Returns the script that shows the run of the page's address, to be called once the tab's inputs have values."""
    return FOLLOW.format(tab=tab)


def history_value(tab: str, hours: float, key: str = "", title: str = "", gone: str = "") -> dict[str, Any]:
    """Returns the list's value: a run that has ended or is shown now, or the key of one that is `gone`."""
    run = {"key": key, "title": title, "at": time.time()} if key else None
    return {"tab": tab, "hours": hours, "period": period_of(hours), "run": run, "gone": gone}
