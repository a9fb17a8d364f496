"""The table of views: what each view shows, which stages it needs, and why a model may not have it.

A new view is a builder in `workbench.visualise.builders` and one entry here. This file opens no model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from workbench.core.errors import BadInput
from workbench.core.runtimes import RUNTIMES
from workbench.families import FAMILIES
from workbench.families.family import Family
from workbench.registry.registry import Registry
from workbench.session.values import PROMPT
from workbench.visualise.builders import (
    attention,
    cif,
    codec,
    confidence,
    ctc,
    embedded,
    gradient,
    layers,
    lens,
    memory,
    quantised,
    sound,
)
from workbench.visualise.options import ViewOptions
from workbench.visualise.scene import Scene
from workbench.visualise.view_content import ViewContent

ViewBuilder = Callable[[Scene, ViewOptions], ViewContent]
PairBuilder = Callable[[Scene, Scene, ViewOptions], ViewContent]


@dataclass(frozen=True)
class View:
    """One way to look at a model."""

    name: str  # as users write it
    label: str  # as the page shows it
    sentence: str  # what one sees
    needs: tuple[str, ...]  # globs of the stages that it is made of; empty for the recording alone
    build: ViewBuilder
    options: tuple[str, ...] = ()  # fields of `ViewOptions` that it uses
    absent: Mapping[str, str] = field(default_factory=dict)  # by family, why its models do not have the view
    not_on: Mapping[str, str] = field(default_factory=dict)  # by runtime, why it is not there
    between: PairBuilder | None = None  # for two models: one more picture of both together

    def why_not(self, family: Family, runtime: str) -> str:
        """Returns why a family's models do not have the view on a runtime; empty if they may have it."""
        reason = self.absent.get(family.name) or self.not_on.get(runtime, "")
        return reason and f"{reason[0].lower()}{reason[1:]}"


def _reasons_without_part(part: str, reason: str) -> Mapping[str, str]:
    """Returns the reason for every family of this project that lacks a part; other packages' families may have it."""
    return {name: reason for name, f in FAMILIES.items() if part not in f.parts and not f.package}


_READS_TEXT = {
    name: "It reads text, and there is no sound to show" for name, f in FAMILIES.items() if f.input == PROMPT
}

VIEWS: Mapping[str, View] = {
    view.name: view
    for view in (
        View(
            "waveform",
            "Waveform",
            "The pressure of the sound over time, and each token where it was spoken.",
            (),
            sound.waveform,
            absent=_READS_TEXT,
        ),
        View(
            "filterbank",
            "Filter bank and LFR",
            "The energy in each band of frequencies over time, and the stacked frames that enter the encoder.",
            ("frontend.*", "tower.mel"),
            sound.filterbank,
            absent=_READS_TEXT,
        ),
        View(
            "ctc",
            "CTC lattice",
            "How likely each token is in each frame, and the best path of the result through the lattice of tokens and "
            "blanks.",
            ("ctc.posteriors", "tokens"),
            ctc.ctc,
            absent={
                **_reasons_without_part("ctc", "It has no CTC head"),
                "funasr_nano": "It writes with its language model, and only a beam search reads its CTC branch",
            },
        ),
        View(
            "cif",
            "CIF integration",
            "The weight of each frame, their running sum, and the borders of tokens where the sum reaches the next "
            "whole number.",
            ("predictor.alphas", "predictor.fine_alphas", "tokens"),
            cif.cif,
            absent=_reasons_without_part("cif", "It has no CIF predictor"),
        ),
        View(
            "attention",
            "Attention",
            "What each row of a layer looks at: each head, their mean, rollout through all layers, or from one token "
            "back to the sound.",
            ("*.layers.N.attention.weights", "decoder.layers.N.cross_attention.weights"),
            attention.attention,
            ("stack", "layer", "head", "attention", "token"),
            absent={"fsmn_vad": "It has no attention"},
        ),
        View(
            "fsmn",
            "FSMN memory",
            "What the memory of a layer adds to each frame, and the filters over neighbouring frames that compute it.",
            ("*.layers.N.fsmn", "*.layers.N.attention.value"),
            memory.memory,
            ("stack", "layer"),
            absent={
                **_reasons_without_part("fsmn", "It has no FSMN memory"),
                "fsmn_vad": "It shows no stages between its features and its scores",
            },
        ),
        View(
            "similarity",
            "Layer similarity",
            "How alike two layers arrange the same frames (linear CKA): 1 for the same arrangement, 0 for none.",
            ("*.layers.*",),
            layers.similarity,
            ("stack",),
            absent={"fsmn_vad": "It shows no stages between its features and its scores"},
            between=layers.similarity_between,
        ),
        View(
            "lens",
            "Logit lens",
            "What the model would write if it stopped after each layer; the last row is what it writes.",
            ("*.layers.*", "logits", "tokens"),
            lens.lens,
            ("count",),
            absent={"fsmn_vad": "It writes no tokens"},
            not_on={"vllm": "It does not go on from given stages, which the lens needs; use pytorch or gguf"},
        ),
        View(
            "confidence",
            "Confidence and entropy",
            "How sure the model is, and how many choices it weighs: for each frame of a CTC head, else for each token.",
            ("ctc.posteriors", "vad.scores", "logits"),
            confidence.confidence,
        ),
        View(
            "gradient",
            "Gradient of a token",
            "Which energies a written token depends on: how its log-probability changes with each value of the filter "
            "bank.",
            ("gradients.fbank.N", "frontend.fbank", "tokens"),
            gradient.gradient,
            ("token",),
            absent={**_reasons_without_part("gradients", "It shows no gradients of tokens"), **_READS_TEXT},
            not_on={
                name: runtime.gradients_unsupported
                for name, runtime in RUNTIMES.items()
                if runtime.gradients_unsupported
            },
        ),
        View(
            "quantisation",
            "Quantisation error",
            "The error that each type of weights in a GGUF file brings into each stage, against float64.",
            ("*",),
            quantised.quantised,
            ("types",),
        ),
        View(
            "codec",
            "Codec streams",
            "The streams of codes that the model writes, delayed as it writes them and aligned as frames of sound.",
            ("codec.rows", "codec.codes"),
            codec.codec,
            absent=_reasons_without_part("codec", "It writes no codes of a codec"),
        ),
        View(
            "embeddings",
            "Embeddings and nearest tokens",
            "Where the embeddings of the sound lie among those of the language model's own tokens, and the tokens "
            "nearest to each.",
            ("adaptor.output", "llm.embeddings"),
            embedded.embedded,
            ("count",),
            absent={
                **{name: "It has no language model" for name, f in FAMILIES.items() if not f.has_language_model},
                "speechlm": "It does not show the table of its embeddings",
            },
        ),
    )
}
"""The views by name, in the order in which the page offers them."""


def find_view(name: str) -> View:
    """Returns a view by its name; raises `BadInput`, which lists the views, for an unknown one."""
    import difflib

    if isinstance(name, str) and name in VIEWS:
        return VIEWS[name]
    close_names = difflib.get_close_matches(str(name), VIEWS, 1)
    hint = f"did you mean {close_names[0]}?" if close_names else f"expected one of {', '.join(VIEWS)}"
    raise BadInput(f"there is no view {str(name)!r:.60}; {hint}")


def available(registry: Registry, model: str, runtime: str | None = None) -> dict[str, str]:
    """Returns for each view why the model does not have it on the runtime; an empty text for those that it has.

    It opens nothing, so a checkpoint may still lack a part that its family usually has. Raises `BadInput` for an
    unknown model.
    """
    card = registry.card(model)
    runtime_name = runtime or registry.default_runtime(card)
    if runtime_name not in RUNTIMES:
        raise BadInput(f"runtime is {runtime_name!r:.60}; expected one of {', '.join(RUNTIMES)}")
    return {name: view.why_not(FAMILIES[card.family], runtime_name) for name, view in VIEWS.items()}
