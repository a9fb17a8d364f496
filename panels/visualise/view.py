"""The contents of the Visualise tab as HTML: the list of views, and the progress. The scripts draw the pictures."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from panels.running.progress import named_percent
from panels.visualise.run import Step
from panels.widgets.templates import render
from workbench.display.words import duration

NOTHING_YET = """<div class="empty">
<p class="lead">What does a model compute from a sound, layer by layer?</p>
<ol>
<li>Click a sample, or add a recording of your own.</li>
<li>Choose a model. Choose a second one to compare them.</li>
<li>Choose a view. All pictures share one time axis: point at one to see the same moment in all of them, or drag to
select a part and hear it.</li>
</ol>
</div>"""


def views_html(chosen: str, reasons: Mapping[str, str]) -> Markup:
    """Returns the views as buttons with a sentence each; `reasons` says why a view is not there, by name."""
    from workbench.visualise.views import VIEWS

    usable = [view for name, view in VIEWS.items() if not reasons.get(name)]
    missing = [(view, reasons[name]) for name, view in VIEWS.items() if reasons.get(name)]
    return render("visualise/view.html", "views", usable, missing, chosen)


def status_html(step: Step) -> Markup:
    """Returns the progress as a line and a bar; after its end, how long it took."""
    if step.result is not None:
        return render("widgets/parts.html", "progress", f"Done in {duration(step.result.seconds)}", None, True)
    if step.stopped:
        return render("widgets/parts.html", "progress", f"Stopped after {duration(step.seconds)}", None, True)
    percent = named_percent(step.activity)
    line = f"{step.activity} · {duration(step.seconds)}"
    return render("widgets/parts.html", "progress", line, percent or 0, percent is not None)
