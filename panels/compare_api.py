"""The endpoint `/compare` for `gradio_client` and notebooks: a parity run, or two trace files held against each other.

What it computes is what the Parity tab and `workbench compare` compute.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import gradio as gr

from panels.api import endpoint, json_object
from panels.parity_runs import compute, request_of
from panels.parity_sides import find_card, traceable, traces_by_name
from panels.pool import SessionPool
from workbench.errors import BadInput
from workbench.families import FAMILIES
from workbench.parity.command import compare_files
from workbench.registry import Registry

SETTINGS = ("rules", "float64", "force", "profiles")


def build(pool: SessionPool) -> None:
    """Adds the endpoint to the page in whose context it is called."""

    def compare(
        model: str = "",
        reference: str = "",
        candidates: list[str] | None = None,
        audio: str | None = None,  # None as the default of a function makes a file's input one that may be left out
        prompt: str = "",
        stages: str = "*",
        options: str = "{}",
        preset: str = "",
        isolated: bool = False,
        traces: list[str] | None = None,
        mapping: str | None = None,
        settings: str = "{}",
        embeddings: list[str] | None = None,
    ) -> dict[str, Any]:
        given = json_object(settings, "the settings", '{"float64": false, "rules": ["relative_l2=1e-3"]}')
        common: dict[str, Any] = {"stages": stages or "*", "preset": preset or None, "mapping": mapping}
        common |= checked(given)
        if not model:
            common.pop("float64", None)  # of traces, there is only what is in them
            return compared_files(traces or [], **common)
        asked = json_object(options, "the options", '{"cmvn": "off"}')
        return compared(
            pool.registry,
            model,
            audio,
            prompt,
            reference,
            candidates or [],
            traces or [],
            asked,
            isolated,
            embeddings or [],
            **common,
        )

    ids = [card.id for card in traceable(pool.registry)]
    with gr.Column(visible=False):
        inputs = [
            gr.Dropdown(["", *ids], value="", allow_custom_value=True, label="id of the model; none: traces only"),
            gr.Textbox("pytorch:f32", label="reference, such as pytorch:f32, or the name of one of the trace files"),
            gr.Dropdown([], value=[], multiselect=True, allow_custom_value=True, label="candidates, as the reference"),
            gr.File(label="audio file"),
            gr.Textbox("", label="prompt, of a language model"),
            gr.Textbox("*", label="stages, a pattern"),
            gr.Textbox("{}", label="options of the model, a JSON object"),
            gr.Textbox("", label="preset; none: what each candidate's arithmetic asks for"),
            gr.Checkbox(False, label="isolated"),
            gr.File(file_count="multiple", label="trace files; without a model, reference and candidate"),
            gr.File(label="mapping file for the names and layouts of the candidates' traces"),
            gr.Textbox("{}", label=f"settings of the comparison ({', '.join(SETTINGS)}), a JSON object"),
            gr.File(file_count="multiple", label="embeddings for the placeholders in the prompt, in order"),
        ]
        endpoint(
            compare,
            inputs,
            "comparison",
            "compare",
            "Compares a model on several runtimes stage by stage, or two trace files.",
        )


def checked(given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a comparison as a script gives them; raises `BadInput` for one that there is not, or another
    type of value."""
    for name, value in given.items():
        if name not in SETTINGS:
            raise BadInput(f"a comparison has no setting {name!r:.40}; it has {', '.join(SETTINGS)}")
        rules = name == "rules" and isinstance(value, list) and all(isinstance(each, str) for each in value)
        if not rules and not (name != "rules" and isinstance(value, bool)):
            expected = "a list of texts" if name == "rules" else "true or false"
            raise BadInput(f"the setting {name} is {value!r:.80}; expected {expected}")
    return given


def compared_files(
    traces: Sequence[str],
    *,
    stages: str = "*",
    preset: str | None = None,
    mapping: str | None = None,
    rules: Sequence[str] = (),
    force: bool = False,
    profiles: bool = False,
) -> dict[str, Any]:
    """Two trace files held against each other: the JSON of `workbench compare --json`.

    Raises `BadInput` where there are not two, or they cannot be compared.
    """
    if len(traces) != 2:
        raise BadInput(
            f"there is no model and there are {len(traces)} trace files; expected a model, or two files: the reference "
            "and the candidate"
        )
    found = compare_files(traces[0], traces[1], preset=preset, rules=rules, mapping=mapping, stages=stages, force=force)
    [line] = found.lines(as_json=True, profiles=profiles)
    return dict(json.loads(line))


def compared(
    registry: Registry,
    model: str,
    audio: str | None,
    prompt: str,
    reference: str,
    candidates: Sequence[str],
    traces: Sequence[str],
    options: dict[str, Any],
    isolated: bool = False,
    embeddings: Sequence[str] = (),
    *,
    stages: str = "*",
    preset: str | None = None,
    mapping: str | None = None,
    rules: Sequence[str] = (),
    force: bool = False,
    profiles: bool = False,
    float64: bool = True,
) -> dict[str, Any]:
    """A parity run of a model: the JSON of `workbench.lab.ParityRun.to_dict`.

    Args:
        traces: paths of trace files, which `reference` and `candidates` name by their file names.
        embeddings: paths of embeddings, one for each placeholder in the prompt.

    Raises `BadInput` for what is wrong with the request, and what keeps the reference from being computed.
    """
    reads_text = FAMILIES[find_card(registry, model).family].reads_text
    asked = request_of(
        registry,
        model,
        prompt if reads_text else audio,
        reference,
        candidates,
        traces_by_name(traces),
        stages=stages,
        options=options,
        exact=float64,
        preset=preset,
        rules=rules,
        mapping=mapping,
        force=force,
        isolated=isolated,
        embeddings=embeddings,
    )
    with compute(registry, asked) as run:
        return dict(json.loads(run.to_json(profiles)))
