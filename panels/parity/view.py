"""The contents of the Parity tab as HTML. The verdicts, the heat map and a stage's details are those of the report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from markupsafe import Markup

from panels.parity.run import Step
from panels.parity.sides import SideChoice, is_gguf_file
from panels.widgets.templates import render
from workbench.compare import PRESETS
from workbench.compare.precision import AUTO, HALVES
from workbench.core.caller import Caller, call_directly
from workbench.display.words import duration
from workbench.formats.quantization import TYPES
from workbench.parity_lab import Outcome, ParityRun, ParityRuns
from workbench.parity_lab.report.heat_map import heat_map
from workbench.parity_lab.report.html_report import noise_details, sides, verdict
from workbench.parity_lab.report.several_report import several_parts
from workbench.parity_lab.report.stage_detail import stage_html
from workbench.parity_lab.several import CandidateOnInputs

VIEW = "parity/view.html"
NOTHING_YET = """<div class="empty">
<p class="lead">At which stage do two runtimes begin to differ?</p>
<ol>
<li>Choose a model and a sample, or a recording or prompt of your own.</li>
<li>Choose what to compare with the reference: other runtimes, other types, or a trace file of another program.</li>
<li>Press <b>Compare</b>. Every stage from the filter bank to the text is compared. The verdict names
the first stage that differs.</li>
</ol>
<p>The reference is computed in float64 too. This shows whether a difference is rounding or a bug.</p>
</div>"""

AUTOMATIC = ("automatic: by the arithmetic of each candidate", "")


def preset_choices() -> list[tuple[str, str]]:
    """Returns the tolerance presets with their meaning."""
    return [AUTOMATIC, *((f"{name}: {preset.title}", name) for name, preset in PRESETS.items())]


def precision_choices(uploads: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Returns the precisions that another program's traces can have, and the choice that finds it automatically.

    Args:
        uploads: names of uploaded files. The program may have read the GGUF files among them.
    """
    automatic_label = "automatic: named in the trace, or detected from its values"
    types = ("float32", *HALVES, *(name for name in TYPES if name.startswith("q")))
    return [(automatic_label, AUTO), *((each, each) for each in (*types, *filter(is_gguf_file, uploads)))]


def sides_html(choices: Sequence[SideChoice], uploads: Iterable[str], chosen: Collection[str]) -> str:
    """Returns the possible candidates: for each runtime its types as toggle buttons, or why it is missing.

    Args:
        uploads: names of uploaded files.
        chosen: the candidates as text; a candidate with its own settings counts for its type.
    """
    pressed = {side.partition("+")[0] for side in chosen} | set(chosen)
    return render(VIEW, "sides", choices, list(uploads), pressed)


def status_html(step: Step) -> str:
    """Returns the progress of a run as a line and a bar; after its end, the result."""
    if step.run is not None:
        return render("widgets/parts.html", "progress", summary(step.run, step.seconds), None, True)
    if step.stopped:
        message = f"Stopped after {duration(step.seconds)}; no results are kept"
        return render("widgets/parts.html", "progress", message, None, True)
    activity = "stopping" if step.stopping else step.activity
    return render(VIEW, "progress", f"{100 * step.share:.0f}", activity, step.seconds)


def summary(run: ParityRun | ParityRuns, seconds: float) -> str:
    """Returns the result of a run in a line."""
    results: Sequence[CandidateOnInputs | Outcome] = run.candidates if isinstance(run, ParityRuns) else run.outcomes
    labels = {
        "within": "within tolerance",
        "beyond": "beyond tolerance",
        "unavailable": "not available",
        "unusable": "unusable",
    }
    statuses = [str(each.status) for each in results]
    counts = [f"{statuses.count(status)} {label}" for status, label in labels.items() if status in statuses]
    inputs_clause = f" over {len(run.inputs)} inputs" if isinstance(run, ParityRuns) else ""
    return f"Compared in {duration(seconds)}{inputs_clause}: {', '.join(counts)}"


def result_html(run: ParityRun, opened: str = "") -> str:
    """Returns a run: its verdicts, the heat map whose stages can be pressed with the open one marked, and its sides."""
    parts = [_joined(part) for part in (map(verdict, run.outcomes), heat_map(run, True, opened), sides(run))]
    noise = [(each.name, _joined(noise_details(each.noise))) for each in run.outcomes if each.noise]
    return render(VIEW, "result", run, *parts[:2], noise, parts[2])


def static_html(run: ParityRun) -> str:
    """Returns a run as `result_html` does, with stages that cannot be pressed: for one whose traces are not kept."""
    parts = [_joined(part) for part in (map(verdict, run.outcomes), heat_map(run, False, ""), sides(run))]
    return render(VIEW, "result", run, *parts[:2], (), parts[2])


def game_html(run: ParityRun) -> str:
    """Returns the errors of a run at each stage, without its verdicts."""
    return render(VIEW, "game", run, _joined(heat_map(run, False, "")))


def several_html(run: ParityRuns) -> str:
    """Returns a run over several inputs: a verdict on each candidate, every stage over all inputs, and each input."""
    return render(VIEW, "several", run, _joined(several_parts(run)))


def _joined(parts: Iterable[str]) -> Markup:
    """Returns parts of the report as one piece of HTML; the report has escaped all text in them."""
    return Markup("".join(parts))


def stage_detail_html(run: ParityRun, place: int, stage: str, call: Caller = call_directly) -> str:
    """Returns a stage of the candidate with that index, with buttons for the same stage of the other candidates.

    Args:
        call: calls the function that reads and draws the stage.
    """
    outcome = run.outcomes[place]
    other_candidates = [
        (number, each.name)
        for number, each in enumerate(run.outcomes)
        if each.comparison and any(stage_comparison.stage == stage for stage_comparison in each.comparison.stages)
    ]
    title = f"{outcome.name} against {run.reference.name}"
    return render(VIEW, "closer", stage, title, other_candidates, place, Markup(call(stage_html, run, place, stage)))
