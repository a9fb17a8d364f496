"""The inputs of a run on the Decode tab: their order, and the job that their values make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from panels.decode.knowledge import FILES
from panels.decode.run import Job, prepare
from panels.running.sessions import SessionPool
from panels.widgets.option_inputs import OptionField, read_inputs
from workbench.core.options import build_options
from workbench.decoding.ctc_options import CtcBeamOptions


class Form(NamedTuple):
    """The inputs of a run, in the order in which the page passes them: components in the layout, values in an event.

    Files are paths there, and an empty input may be None.
    """

    recordings: Any
    logits: Any
    tokens: Any
    blank: Any
    model: Any
    reference: Any
    neural: Any
    decoders: Any
    files: Sequence[Any]  # what the search may know, in the order of `FILES`
    options: Sequence[Any]  # of the search

    @classmethod
    def of(cls, values: Sequence[Any]) -> Form:
        """Returns the form that has these inputs, which are in its order."""
        end_of_files = FIRST_FILE + len(FILES)
        return cls._make((*values[:FIRST_FILE], values[FIRST_FILE:end_of_files], values[end_of_files:]))

    @property
    def inputs(self) -> list[Any]:
        """All inputs, in their order."""
        return [*self[:FIRST_FILE], *self.files, *self.options]


FIRST_FILE = Form._fields.index("files")
PLACES_OF_FILES = (
    *map(Form._fields.index, ("recordings", "logits", "tokens")),
    *range(FIRST_FILE, FIRST_FILE + len(FILES)),
)
"""The places of the inputs that hold files."""


def job_of(pool: SessionPool, options: Sequence[OptionField], form: Form) -> Job:
    """Returns the job that the values make; raises `BadInput` that says what is wrong.

    Args:
        options: the options of the search that the form has values for.
    """
    pool.guard.check_arrays(form.logits or [])
    paths = {name: path or None for name, path in zip(FILES, form.files)}
    chosen = read_inputs(options, form.options)
    values = {**paths, **chosen, "neural_lm": form.neural or None}
    return prepare(
        pool.registry,
        form.recordings or [],
        form.model or "",
        form.logits or [],
        form.tokens,
        form.blank,
        form.reference or "",
        build_options(CtcBeamOptions, values, "the beam search"),
        form.decoders,
    )
