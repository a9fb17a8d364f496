"""The inputs of a comparison on the page: their order, and the request that their values make."""

from __future__ import annotations

from typing import Any, NamedTuple

from panels.parity.request import Request, UncheckedRequest, check_request, source_of
from panels.parity.several import uploaded_inputs
from panels.parity.sides import find_card, lines_of, uploads_by_name, usual_sides
from workbench.compare.precision import AUTO
from workbench.families import FAMILIES
from workbench.registry.registry import Registry

ISOLATED, END_TO_END = "isolated", "end to end"
MODES = [
    ("End to end: each computes alone, and errors add up", END_TO_END),
    ("Isolated: each stage is computed from the other side's input, and shows its own error", ISOLATED),
]


class Form(NamedTuple):
    """The inputs of a run, in the order in which the page passes them: components in the layout, values in an event.

    Files are paths there, texts may have several lines, and an empty input may be None.
    """

    model: Any
    recording: Any
    prompt: Any
    embeddings: Any
    reference: Any
    candidates: Any
    uploads: Any
    mapping: Any
    mode: Any
    stages: Any
    preset: Any
    rules: Any
    exact: Any
    force: Any
    steps: Any
    precision: Any
    several: Any


FILES = tuple(map(Form._fields.index, ("recording", "embeddings", "uploads", "mapping", "several")))
"""The places of the inputs that hold files."""


def request_of(registry: Registry, form: Form) -> Request:
    """Returns the request that the values make; raises `BadInput` that says what is wrong."""
    card = find_card(registry, form.model)
    family = FAMILIES[card.family]
    reference, candidates = form.reference or "", lines_of(form.candidates)
    if not reference and not candidates:  # pressed before the page has filled them in
        reference, candidates_text = usual_sides(registry, card)
        candidates = lines_of(candidates_text)
    unchecked = UncheckedRequest(
        form.model,
        source_of(family, form.recording, form.prompt),
        reference,
        candidates,
        uploads_by_name(form.uploads or []),
        stages=(form.stages or "").strip() or "*",
        exact=form.exact,
        preset=form.preset or None,
        rules=lines_of(form.rules),
        mapping=form.mapping,
        force=form.force,
        isolated=form.mode == ISOLATED,
        embeddings=form.embeddings or (),
        steps=(form.steps or "").strip(),
        precision=form.precision or AUTO,
        inputs=uploaded_inputs(form.several or [], family),
    )
    return check_request(registry, unchecked)
