"""Break it yourself: a fault is planted into a copy of a demo model, and the comparison finds it.

In a game for a class, the fault is hidden, and a player names the first wrong stage.

This file has the event handlers; `workbench.parity_lab.breaking` has the faults.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr

from panels.parity.events import ParityActions, run_html
from panels.parity.request import UncheckedRequest, check_request
from panels.parity.run import Step
from panels.parity.view import game_html, status_html
from panels.running.last_results import LastResults
from panels.widgets.samples import read_samples
from panels.widgets.tab_parts import run_buttons
from panels.widgets.templates import render
from workbench.core.errors import BadInput
from workbench.core.sides import read_side
from workbench.parity_lab import ParityRun
from workbench.parity_lab.breaking import FAULTS, Fault, find_fault, planted_side
from workbench.system.tempdirs import make_tempdir

HIDDEN_NAME = "hidden change"
PLANTING = "changing a copy of the model"
NO_GAME = "nothing is hidden; press Hide a change first"
KINDS = tuple(dict.fromkeys((each.kind, each.title if each.kind != "layer" else "A layer skipped") for each in FAULTS))


@dataclass(frozen=True)
class Game:
    """A visitor's game: the fault that is hidden now, and the points for earlier faults."""

    fault: str = ""
    points: int = 0
    asked: int = 0  # the most points that were possible


class BreakingActions:
    """The event handlers of the card "Break it yourself"."""

    def __init__(self, parity: ParityActions):
        self._parity = parity
        self._folders: LastResults[Path] = LastResults(
            "that comparison is not kept any more; run it again", close=_remove
        )

    def plant(self, name: str, recording: str | None, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        """Plants a fault and compares; yields the same values as a comparison."""
        yield from self._compare(find_fault(name), recording, str(request.session_hash), hidden=False)

    def hide(self, game: Game, recording: str | None, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        """Hides a fault and compares; yields the values of a comparison and of the game: state, stages, sentence."""
        fault = random.choice([each for each in FAULTS if each.name != game.fault])
        user = str(request.session_hash)
        for values in self._compare(fault, recording, user, hidden=True):
            yield *values, gr.skip(), gr.skip(), ""
        run = self._parity.last_runs.get(user)
        if not isinstance(run, ParityRun):
            return
        yield (
            *(gr.skip(),) * 6,
            replace(game, fault=fault.name),
            gr.update(choices=[*_stages(run), NOWHERE], value=None),
            render("parity/breaking.html", "hidden", fault.model),
        )

    def reveal(self, game: Game, stage: str | None, kind: str | None, request: gr.Request) -> tuple[Any, ...]:
        """Returns the verdicts, the game's state and what was hidden; a point each for the stage and for the fault."""
        if not game.fault:
            raise BadInput(NO_GAME)
        if not stage or not kind:
            raise BadInput("choose the first wrong stage, and what you think was changed")
        run, fault = self._parity.last_runs.of(str(request.session_hash)), find_fault(game.fault)
        first_wrong_stage = first_wrong(run) if isinstance(run, ParityRun) else ""
        guesses_right = (stage == (first_wrong_stage or NOWHERE), kind == fault.kind)
        game = Game("", game.points + sum(guesses_right), game.asked + 2)
        answer = render("parity/breaking.html", "revealed", fault, first_wrong_stage, *guesses_right, game)
        return run_html(run), game, answer

    def leave(self, request: gr.Request) -> None:
        """Removes the files of a user who closed the page."""
        self._folders.drop(str(request.session_hash))

    def _compare(self, fault: Fault, recording: str | None, user: str, hidden: bool) -> Iterator[tuple[Any, ...]]:
        registry, folder = self._parity.pool.registry, make_tempdir()
        source = recording or str(read_samples()[0].path)
        name = HIDDEN_NAME if hidden else fault.title
        try:
            request = check_request(registry, UncheckedRequest(fault.model, source, "pytorch:f32", ["pytorch:f32"]))
            yield gr.skip(), status_html(Step(activity=PLANTING)), *run_buttons(True), gr.skip(), gr.skip()
            side = planted_side(registry, fault, source, folder, name)
            if isinstance(side, str):
                side = replace(read_side(side, registry.options_class(fault.model), fault.model), name=name)
        except Exception:
            _remove(folder)
            yield gr.skip(), "", *run_buttons(False), gr.skip(), gr.skip()
            raise
        self._folders.put(user, folder)  # the comparison reads the trace later too
        request = replace(request, candidates=(side,))
        yield from self._parity.run(request, user, game_html if hidden else run_html)


NOWHERE = "none: all are within tolerance"


def first_wrong(run: ParityRun) -> str:
    """Returns the first stage in error of the run's candidate; empty if there is none."""
    verdict = run.outcomes[0].verdict
    return (verdict.faulty_stage or "") if verdict and run.outcomes[0].status == "beyond" else ""


def _stages(run: ParityRun) -> list[str]:
    comparison = run.outcomes[0].comparison
    return [each.stage for each in comparison.stages] if comparison else []


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
