"""What the Parity tab shows, as HTML. The verdicts, the heat map and a stage's details are those of the report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from panels.parity.run import Step
from panels.parity.sides import SideChoice
from panels.widgets.markup import button, element, seconds, text
from workbench.compare import PRESETS
from workbench.parity_lab import ParityRun
from workbench.parity_lab.heat_map import heat_map
from workbench.parity_lab.html_report import noise_details, sides, verdict
from workbench.parity_lab.stage_detail import stage_details

NOTHING_YET = """<div class="empty">
<p class="lead">Where do two runtimes part ways?</p>
<ol>
<li>Choose a model and a sample, or a recording or prompt of your own.</li>
<li>Choose what to hold against the reference: other runtimes, other types, or a trace file of another program.</li>
<li>Press <b>Compare</b>. Every stage from the filter bank to the text is compared, and the first that differs is
named.</li>
</ol>
<p>The reference is computed in float64 too, so that rounding is told from a bug.</p>
</div>"""

AUTOMATIC = ("automatic: what each candidate's arithmetic asks for", "")


def preset_choices() -> list[tuple[str, str]]:
    """The tolerance presets with what they mean."""
    return [AUTOMATIC, *((f"{name}: {preset.title}", name) for name, preset in PRESETS.items())]


def sides_html(listed: Sequence[SideChoice], traces: Iterable[str], chosen: Collection[str]) -> str:
    """What may be a candidate: for each runtime its types as buttons that are pressed or not, or why it is not there.

    Args:
        traces: names of uploaded trace files.
        chosen: the candidates as they are written; one with settings of its own counts for its type.
    """
    pressed = {side.partition("+")[0] for side in chosen} | set(chosen)
    rows = [_offered(each, pressed) for each in listed]
    files = [_toggle(name, name, "", name in pressed) for name in traces]
    if files:
        rows.append(_row("Trace files", "".join(files)))
    return element("ul", "".join(rows), "choices")


def _offered(each: SideChoice, pressed: Collection[str]) -> str:
    if not each.kinds:
        return _row(each.title, element("span", text(each.reason), "muted small"))
    toggles = "".join(_toggle(kind.side, kind.label, kind.size, kind.side in pressed) for kind in each.kinds)
    return _row(each.title, toggles, each.reason)


def _row(title: str, content: str, note: str = "") -> str:
    small = element("small", text(note)) if note else ""
    name = element("span", text(title) + small, "name")
    return element("li", name + element("span", content, "runs"), role="group", aria_label=f"Candidates: {title}")


def _toggle(side: str, label: str, note: str, pressed: bool) -> str:
    content = f"{text(label)} {element('small', text(note)) if note else ''}".strip()
    state = "true" if pressed else "false"
    return element("button", content, "toggle", type="button", title=side, aria_pressed=state, data_side=side)


def status_html(step: Step) -> str:
    """How far a run is, in a line and a bar; of one that is over, what came of it."""
    if step.run is not None:
        return element("div", element("p", text(summary(step.run, step.seconds)), role="status"), "progress")
    if step.stopped:
        said = f"Stopped after {seconds(step.seconds)}; nothing of it is kept"
        return element("div", element("p", text(said), role="status"), "progress")
    doing = "stopping" if step.stopping else step.activity
    line = element("p", f"<b>{step.share:.0%}</b> · {text(doing)} · {text(seconds(step.seconds))}")
    return element("div", line + element("div", f'<i style="width:{100 * step.share:.0f}%"></i>', "bar"), "progress")


def summary(run: ParityRun, took: float) -> str:
    """What came of a run in a line."""
    words = {"within": "within tolerance", "beyond": "beyond", "unavailable": "not available", "unusable": "unusable"}
    found = [str(each.status) for each in run.outcomes]
    counts = [f"{found.count(status)} {said}" for status, said in words.items() if status in found]
    return f"Compared in {seconds(took)}: {', '.join(counts)}"


def result_html(run: ParityRun, opened: str = "") -> str:
    """A run: its verdicts, the heat map to press stages in, with the one that is opened marked, and who computed
    what."""
    about = f"{run.source} · reference {run.reference.name}"
    parts = [element("h3", f"{text(run.model)} {element('span', text(about), 'muted')}")]
    if run.isolated:
        parts.append(element("p", text(run.mode), "faint"))
    parts += [verdict(each) for each in run.outcomes]
    if run.no_exact:
        parts.append(element("p", f"Noise is not told from a bug: {text(run.no_exact)}", "faint"))
    parts += heat_map(run, pressable=True, opened=opened)
    for each in run.outcomes:
        if each.noise:
            named = element("summary", f"Noise or bug: {text(each.name)}")
            parts.append(element("details", named + "".join(noise_details(each.noise))))
    parts.append(element("details", element("summary", "Who computed what") + "".join(sides(run))))
    return element("div", "".join(parts), "lab")


def closer_html(run: ParityRun, place: int, stage: str) -> str:
    """A stage of the candidate in that place of the run, with buttons for the same stage of the others."""
    outcome = run.outcomes[place]
    others = [
        (number, each.name)
        for number, each in enumerate(run.outcomes)
        if each.comparison and any(found.stage == stage for found in each.comparison.stages)
    ]
    tabs = "".join(
        button(name, "look", stage=stage, side=number, pressed=number == place)
        for number, name in others
        if len(others) > 1
    )
    title = f"{text(stage)} {element('span', text(f'{outcome.name} against {run.reference.name}'), 'muted')}"
    head = element("h3", title, tabindex="-1", aria_live="polite")
    buttons = element("div", tabs, "buttons") if tabs else ""
    return element("div", head + buttons + "".join(stage_details(run, outcome, stage)), "lab card closer")
