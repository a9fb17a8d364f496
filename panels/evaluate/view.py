"""The contents of the Evaluate tab as HTML. The results are the report itself, in a frame."""

from __future__ import annotations

from importlib.util import find_spec

from panels.evaluate.run import Results, Step
from panels.widgets.templates import render
from workbench.core.phrases import counted
from workbench.display.words import duration

VIEW = "evaluate/view.html"
NOTHING_YET = """<div class="empty">
<p class="lead">Is one model better than another, or was it luck?</p>
<ol>
<li>Use the samples, or upload a corpus: recordings with their texts.</li>
<li>Tick models, runtimes and quantisations.</li>
<li>Press <b>Evaluate</b>. Cancel keeps the finished results.</li>
</ol>
<p>Error rates have confidence intervals. For each pair of models, one sentence says whether the difference is real.</p>
</div>"""


def status_html(step: Step) -> str:
    """Returns the progress of a run as a line and a bar; after its end, the result."""
    if step.finished:
        return render("widgets/parts.html", "progress", summary(step), None, True)
    doing = "stopping" if step.stopping else step.activity
    return render(VIEW, "progress", f"{100 * step.share:.0f}", doing, step.seconds, step.skipped)


def summary(step: Step) -> str:
    """Returns the result of a run in a line."""
    skipped = f"; {counted(step.skipped, 'row')} of the manifest could not be used" if step.skipped else ""
    skipped += "".join(f"; {note}" for note in step.notes)
    if step.results is None:
        return f"Stopped after {duration(step.seconds)}; there are no results yet{skipped}"
    finished = sum(each.done for each in step.results.figures.models)
    limit = f" at the {step.time_limit} that one run may take here" if step.time_limit else ""
    prefix = f"Stopped{limit}: " if step.stopped else ""
    return f"{prefix}{counted(finished, 'result')} in {duration(step.seconds)}{skipped}"


def result_html(results: Results) -> str:
    """Returns links to save the results, and a frame with the report."""
    kinds = [("csv", "CSV"), ("jsonl", "JSON lines")]
    if find_spec("pyarrow"):
        kinds.append(("parquet", "Parquet"))
    return render(VIEW, "result", results.key, kinds)
