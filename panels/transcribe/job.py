"""What a run of the Transcribe tab computes, its models and recordings, and the table of its results.

This file knows neither Gradio nor HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from panels.running.choices import ModelOnRuntime, RuntimeOffer, check_options_known, chosen_offers, offers, options_for
from panels.running.progress import RunTable
from panels.widgets.samples import references
from workbench.core.errors import BadInput
from workbench.registry.domains import alternative_model
from workbench.registry.registry import Registry
from workbench.session.values import Progress, Segment, Transcript
from workbench.system.memory import size
from workbench.text.normalisers import find_normaliser
from workbench.text.rates import Score

Status = Literal["waiting", "running", "done", "failed", "stopped"]


@dataclass(frozen=True)
class Row:
    """One model's result on one recording, at some point of the run."""

    key: str
    recording: str  # its name for the user
    path: str
    cell: ModelOnRuntime
    title: str  # name of the model and its runtime
    reference: str | None = None  # the reference text, if known
    status: Status = "waiting"
    progress: Progress | None = None
    transcript: Transcript | None = None
    score: Score | None = None
    error: str = ""
    weight_bytes: int = 0  # size of the files with the weights
    writing: str = ""  # the text so far of a running or stopped row
    segments: tuple[Segment, ...] = ()  # the segments so far, the last one perhaps not whole


@dataclass(frozen=True)
class Instead:
    """A model for recordings that the models of a run were not made for."""

    cell: str  # `ModelOnRuntime.value`
    title: str  # its name, and the size of its download if it is not there yet


@dataclass(frozen=True)
class Job:
    """The run's models and recordings. `options` are per model, already checked."""

    recordings: tuple[str, ...]  # paths
    offers: tuple[RuntimeOffer, ...]
    references: tuple[str | None, ...]
    normaliser: str
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings of sessions, by runtime
    instead: Instead | None = None

    def settings_of(self, offer: RuntimeOffer) -> Mapping[str, Any]:
        """Returns the settings for the offer's session; none for a server, which has its own."""
        return {} if offer.elsewhere else self.settings.get(offer.cell.runtime, {})

    def rows(self) -> tuple[Row, ...]:
        """Returns the table before the run: recording by recording, the models in the chosen order."""
        return tuple(
            Row(f"{index}:{offer.cell.value}", Path(path).name, path, offer.cell, offer.title, reference)
            for index, (path, reference) in enumerate(zip(self.recordings, self.references))
            for offer in self.offers
        )


def prepare(
    registry: Registry,
    recordings: Sequence[str],
    cells: Sequence[str],
    reference: str,
    normaliser: str,
    options: Mapping[str, Any],
    family_options: Mapping[str, Mapping[str, Any]] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Job:
    """Returns the job that a user described, checked as far as possible without reading a recording or loading a model.

    Args:
        cells: the models and runtimes, as `ModelOnRuntime.value`.
        reference: the text of the one recording, or a line for each of several.
        options: options of any of the models; each model gets those that it has.
        family_options: by family, for option values that do not suit every family with that option.
        settings: checked settings of sessions, by runtime.

    Raises `BadInput` that says what is wrong.
    """
    if not recordings:
        raise BadInput("there is no recording; add a file, record one, or click a sample")
    known = offers(registry)
    chosen = chosen_offers(cells, known)
    find_normaliser(normaliser)
    check_options_known(registry, [offer.cell.model for offer in chosen], options)
    options_by_model = {
        offer.cell.model: {**options, **(family_options or {}).get(offer.card.family, {})} for offer in chosen
    }
    return Job(
        tuple(recordings),
        chosen,
        references(reference, len(recordings)),
        normaliser,
        {model: options_for(registry, model, model_options) for model, model_options in options_by_model.items()},
        settings or {},
        instead_of_all(chosen, known),
    )


def instead_of_all(chosen: Sequence[RuntimeOffer], known: Sequence[RuntimeOffer]) -> Instead | None:
    """Returns a model that can run and may understand what the chosen models do not.

    Returns None if there is no such model, or if one of the chosen models has no narrow domain.
    """
    if not all(offer.card.domain for offer in chosen):
        return None
    possible = [offer for offer in known if offer.possible and not offer.elsewhere]
    alternative = alternative_model(chosen[0].card, [offer.card for offer in possible])
    if alternative is None:
        return None
    offer = next(each for each in possible if each.card.id == alternative.id)
    megabytes = f" ({size(alternative.megabytes * 10**6)})" if offer.fetches and alternative.megabytes else ""
    return Instead(offer.cell.value, alternative.name + megabytes)


@dataclass(frozen=True)
class RunState(RunTable[Row]):
    """The table of results, the progress of the run, and another model that may fit better."""

    instead: Instead | None = None

    @property
    def settled(self) -> int:
        """The number of rows that will not change any more."""
        return sum(row.status in ("done", "failed", "stopped") for row in self.rows)

    @property
    def fraction(self) -> float:
        """The finished share of the run, 0 to 1."""
        if not self.rows:
            return 0.0
        under_way = sum(
            row.progress.done / row.progress.total
            for row in self.rows
            if row.status == "running" and row.progress and row.progress.total
        )
        return min((self.settled + under_way) / len(self.rows), 1.0)
