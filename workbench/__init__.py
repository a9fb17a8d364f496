"""Speech Workbench: run, compare and teach speech models over PyTorch, GGUF and vLLM.

>>> import workbench
>>> with workbench.Registry() as registry, registry.open("demo/sensevoice") as session:
...     print(session.transcribe("assets/samples/three_seven_one.wav").text)
three seven one
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.core.errors import BadInput, Cancelled, SessionDied, Unavailable, WorkbenchError
    from workbench.pipelines.ctc.beam_search import TextHypothesis
    from workbench.registry.ctc_search import CtcBeamSearch
    from workbench.registry.registry import Registry
    from workbench.session.conversation import Answer, AnswerSoFar, AnswerStart, AudioPiece
    from workbench.session.protocols import Session
    from workbench.session.values import (
        Generation,
        Partial,
        Piece,
        Progress,
        Segment,
        SpokenHypothesis,
        Token,
        Transcript,
    )
    from workbench.trace.trace import Trace
    from workbench.visualise.run import visualise

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "AnswerSoFar",
    "AnswerStart",
    "AudioPiece",
    "BadInput",
    "Cancelled",
    "CtcBeamSearch",
    "Generation",
    "Partial",
    "Piece",
    "Progress",
    "Registry",
    "Segment",
    "Session",
    "SessionDied",
    "SpokenHypothesis",
    "TextHypothesis",
    "Token",
    "Trace",
    "Transcript",
    "Unavailable",
    "WorkbenchError",
    "visualise",
]
_HOMES = {
    "CtcBeamSearch": "workbench.registry.ctc_search",
    "Registry": "workbench.registry.registry",
    "Session": "workbench.session.protocols",
    "TextHypothesis": "workbench.pipelines.ctc.beam_search",
    "Trace": "workbench.trace.trace",
    **dict.fromkeys(("Answer", "AnswerSoFar", "AudioPiece", "AnswerStart"), "workbench.session.conversation"),
    **dict.fromkeys(("BadInput", "Cancelled", "SessionDied", "Unavailable", "WorkbenchError"), "workbench.core.errors"),
}


def __getattr__(name: str) -> Any:
    # Imports on first use, so that a session's process does not load the registry.
    if name not in __all__:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    from importlib import import_module

    if name == "visualise":
        return import_module("workbench.visualise")  # a module that can be called
    return getattr(import_module(_HOMES.get(name, "workbench.session.values")), name)


def __dir__() -> list[str]:
    # Includes the names that are imported on first use.
    return sorted({*globals(), *__all__} - {"annotations", "Any", "TYPE_CHECKING"})
