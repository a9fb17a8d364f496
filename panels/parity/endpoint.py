"""The endpoint `/compare` for `gradio_client` and notebooks: a parity run, or a comparison of two trace files.

It computes the same as the Parity tab and `workbench compare`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gradio as gr

from panels.parity.request import UncheckedRequest, check_request, source_of
from panels.parity.run import PARITY, compute, compute_several
from panels.parity.several import inputs_of
from panels.parity.sides import check_uploads, find_card, traceable, uploads_by_name
from panels.running.parameters import (
    FILE,
    FILES,
    OBJECT,
    OBJECT_SCHEMA,
    SWITCH,
    TEXT,
    TEXTS,
    UPLOAD,
    Parameter,
    endpoint,
)
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING
from panels.transcribe.endpoint import sample
from workbench.compare.presets import PRESETS
from workbench.core.caller import Caller, call_directly
from workbench.core.errors import BadInput
from workbench.core.visitors import check_work
from workbench.families import FAMILIES
from workbench.registry.registry import Registry
from workbench.serving.admission.guard import Guard
from workbench.serving.comparison import compare_in_separate_process

SETTINGS = ("rules", "float64", "force", "profiles", "steps", "precision")

COMPARE = {
    "model": Parameter(
        "model", "The id of the model, as /models lists them; empty where two traces are given.", TEXT, ""
    ),
    "reference": Parameter(
        "reference",
        "The reference of the comparison: a runtime with a type behind a colon, or a trace file by its name.",
        TEXT,
        "pytorch:f32",
    ),
    "candidates": Parameter(
        "candidates",
        "One candidate or a list of them, each in the form of the reference, such as gguf:q8_0; +name=value after it "
        "sets a setting or an option for it alone.",
        TEXTS,
        [],
    ),
    "audio": Parameter("recording", f"The recording, as a file: {UPLOAD}.", FILE),
    "prompt": Parameter(
        "prompt", "The prompt of a language model; a model that takes a recording and a text gets both.", TEXT, ""
    ),
    "stages": Parameter("stages", "A pattern such as encoder.*; several patterns are separated by commas.", TEXT, "*"),
    "options": Parameter(
        "options", 'Options of the model, an object such as {"cmvn": "off"}, or JSON text of one.', OBJECT, {}
    ),
    "preset": Parameter(
        "preset",
        f"The tolerance: {', '.join(PRESETS)}; empty for the one that fits the arithmetic of each candidate.",
        TEXT,
        "",
    ),
    "isolated": Parameter(
        "isolated",
        "Whether each stage of a candidate is computed from the reference's input of that stage; for a trace file, "
        "each stage of the reference is computed from the input that the trace has.",
        SWITCH,
        False,
    ),
    "traces": Parameter(
        "traces",
        "Trace files that the reference and the candidates name, and GGUF files that candidates or the precision name; "
        f"without a model, two trace files: first the reference, then the candidate. Files: {UPLOAD}.",
        FILES,
    ),
    "mapping": Parameter("mapping", "A mapping file for the arrays in the candidates' traces.", FILE),
    "settings": Parameter(
        "settings",
        'Settings of the comparison, an object such as {"float64": false, "rules": ["relative_l2=1e-3"]}, or JSON text '
        f"of one: {', '.join(SETTINGS)}.",
        OBJECT,
        {},
    ),
    "embeddings": Parameter("embeddings", f"Files for the placeholders in the prompt, in order: {UPLOAD}.", FILES),
    "recordings": Parameter(
        "recordings",
        f"Several recordings instead of one, for one verdict over all of them: {UPLOAD}.",
        FILES,
    ),
    "prompts": Parameter("prompts", "Several prompts instead of one, for one verdict over all of them.", TEXTS, []),
}


def build(page: Page, pool: SessionPool) -> None:
    """Adds the endpoint to the page, in the current context."""

    def compare(
        model: str,
        reference: str,
        candidates: list[str],
        audio: str | None = None,  # Gradio takes None as an input's default only if the function has it too
        prompt: str = "",
        stages: str = "*",
        options: dict[str, Any] | None = None,
        preset: str = "",
        isolated: bool = False,
        traces: list[str] | None = None,
        mapping: str | None = None,
        settings: dict[str, Any] | None = None,
        embeddings: list[str] | None = None,
        recordings: list[str] | None = None,
        prompts: list[str] | None = None,
    ) -> dict[str, Any]:
        check_uploads(pool.guard, traces or [])
        settings_by_name: dict[str, Any] = {"stages": stages or "*", "preset": preset or None, "mapping": mapping}
        settings_by_name |= checked(settings or {})
        if not model:
            for name in ("float64", "steps", "precision"):  # a trace file has one type only, and its own steps
                settings_by_name.pop(name, None)
            return compared_files(pool.guard, traces or [], **settings_by_name)
        profiles, exact = settings_by_name.pop("profiles", False), settings_by_name.pop("float64", True)
        with pool.guard.turn(PARITY, alone=False), pool.guard.separate_process() as call:
            family = FAMILIES[find_card(pool.registry, model).family]
            request = UncheckedRequest(
                model,
                source_of(family, audio, prompt),
                reference,
                candidates,
                uploads_by_name(traces or []),
                options=options or {},
                exact=exact,
                isolated=isolated,
                embeddings=embeddings or (),
                inputs=inputs_of([*(recordings or []), *(prompts or [])], family),
                **settings_by_name,
            )
            return compared(pool.registry, request, profiles, call)

    with gr.Column(visible=False):
        endpoint(
            page,
            compare,
            COMPARE,
            "comparison",
            OBJECT_SCHEMA,
            "compare",
            "Compares a model on several runtimes stage by stage, or two trace files; gives one object.",
            {
                "model": next((card.id for card in traceable(pool.registry)), ""),
                "reference": "pytorch:f32",
                "candidates": "pytorch:f64",
                "audio": sample(),
            },
            **COMPUTING,
        )


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


_EXPECTED: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "rules": ("a list of texts", _is_texts),
    "steps": ("a text such as first or 1,5", lambda value: isinstance(value, str)),
    "precision": (
        "a type of the candidates' traces such as bfloat16, or the name of a GGUF file in traces",
        lambda value: isinstance(value, str),
    ),
}
"""For each setting that is not a switch: its valid values in words, and the function that checks them."""


def checked(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns a script's settings of a comparison; raises `BadInput` for an unknown setting or a wrong type."""
    for name, value in settings.items():
        if name not in SETTINGS:
            raise BadInput(f"a comparison has no setting {name!r:.40}; it has {', '.join(SETTINGS)}")
        expected, is_valid = _EXPECTED.get(name, ("true or false", lambda value: isinstance(value, bool)))
        if not is_valid(value):
            raise BadInput(f"the setting {name} is {value!r:.80}; expected {expected}")
    return settings


def compared_files(guard: Guard, traces: Sequence[str], **settings: Any) -> dict[str, Any]:
    """Compares two trace files: returns the JSON of `workbench compare --json`.

    Args:
        settings: as `workbench.serving.comparison.compare_in_separate_process` takes them.

    Raises `BadInput` unless there are two that can be compared.
    """
    if len(traces) != 2:
        raise BadInput(
            f"there is no model and there are {len(traces)} trace files; expected a model, or two files: the reference "
            "and the candidate"
        )
    return compare_in_separate_process(guard, traces[0], traces[1], **settings)


def ends_with_the_work(share: float, activity: str) -> None:
    """Raises an error if the run's visitor has left, or if the run took too long; ignores the progress."""
    check_work()


def compared(
    registry: Registry, unchecked: UncheckedRequest, profiles: bool = False, call: Caller = call_directly
) -> dict[str, Any]:
    """Compares a model on several runtimes: returns the JSON of `workbench.parity_lab.ParityRun.to_dict`, or for
    several inputs that of `workbench.parity_lab.ParityRuns.to_dict`.

    Args:
        profiles: as `workbench.parity_lab.ParityRun.to_json` takes it.
        call: as `workbench.parity_lab.run_parity` takes it.

    Raises `BadInput` for errors in the request, and if the reference cannot be computed.
    """
    request = check_request(registry, unchecked)
    if request.inputs:
        return compute_several(registry, request, ends_with_the_work, call).to_dict()
    with compute(registry, request, ends_with_the_work, call) as run:
        return dict(json.loads(run.to_json(profiles)))
