"""`workbench train-demo`: trains a demo model and writes its checkpoint directory in the published format."""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from workbench.core.errors import BadInput
from workbench.core.phrases import counted
from workbench.families import FAMILIES, load
from workbench.training.data.digits import Take, load_fsdd, split_by_speaker
from workbench.training.data.other_speech import backwards, recorded_speech, synthetic_speech
from workbench.training.data.voices import synthetic_takes
from workbench.training.model_card import (
    CardFacts,
    Measured,
    continue_card,
    measure_checkpoint,
    rounds_in,
    rounds_with_more_speakers,
    write_card,
)
from workbench.training.training_run import DemoOptions, TrainingRun


class Recipe(Protocol):
    """The recipe to train and write a family's demo.

    A recipe whose demo can be trained further has a function `train_further(run, directory)`, which returns the same as
    `train`. The recipe of a model that is not a recogniser also has a function `finish(directory, held_out, facts)`,
    which measures the checkpoint and writes its card.
    """

    ABOUT: str  # the card's text about the training, in addition to the text for all families

    def train(self, run: TrainingRun) -> Any:
        """Trains the network; returns what `write` needs."""
        ...

    def write(self, trained: Any, directory: Path) -> int:
        """Writes the checkpoint into the directory; returns its number of parameters."""
        ...


def train_demo(family: str, data: Path, out: Path, options: DemoOptions, log: Callable[[str], None]) -> list[Measured]:
    """Trains the family's demo on the spoken digits in `data` and writes a checkpoint directory `out`.

    The last speaker in alphabetical order is never trained on. Returns the word error rates on that speaker, which are
    also in the directory's model card. Raises `BadInput` for an unknown family or an unusable folder, `Unavailable` if
    the speech synthesisers are missing.
    """
    family = family.replace("-", "_")
    recipe = recipe_of(family)
    earlier, recorded = "", list[str]()
    if options.start is not None:
        further = check_start(family, recipe, options.start)
        earlier = (options.start / "README.md").read_text(encoding="utf-8")
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file; expected a folder to write the checkpoint to")
    if out.is_dir() and any(out.iterdir()) and not FAMILIES[family].recognises(out):
        raise BadInput(
            f"{out} is a folder with other files in it; expected a new one, an empty one, or one with an earlier "
            f"checkpoint of {family}"
        )
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    human, held_out = split_by_speaker(load_fsdd(data))
    extra_takes = [] if options.more_speakers is None else more_takes(options.more_speakers, held_out)
    extra_rounds = rounds_with_more_speakers(earlier)
    start_time = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="workbench-train-") as temporary:
        cache = options.cache or Path(temporary)
        cache.mkdir(parents=True, exist_ok=True)
        log("speaking the synthetic voices")
        rounds = extra_rounds if extra_takes else rounds_in(earlier) - extra_rounds
        run = TrainingRun(options, [*human, *extra_takes, *synthetic_takes(cache)], cache, log, rounds)
        if options.start is None:
            trained = recipe.train(run)
        else:
            log("speaking texts without digits")
            run.takes = [*run.takes, *synthetic_speech(cache), *backwards(human)]
            if options.other_speech is not None:
                speech_takes = recorded_speech(options.other_speech)
                recorded = sorted({take.speaker.partition(",")[0] for take in speech_takes})
                run.takes += speech_takes
            trained = further(run, options.start)
    minutes = (time.monotonic() - start_time) / 60

    out.mkdir(parents=True, exist_ok=True)
    parameters = recipe.write(trained, out)
    threads = counted(options.threads, "thread")
    facts = CardFacts(
        family=family,
        parameters=parameters,
        speakers=sorted({take.speaker for take in human}),
        held_out=sorted({take.speaker for take in held_out}),
        phases=run.phases,
        seed=options.seed,
        minutes=minutes,
        machine=f"{platform.machine()}, {threads}, torch {torch.__version__}",
        about=recipe.ABOUT,
        scale=options.updates_scale,
        more_speakers=sorted({take.speaker for take in extra_takes}),
    )
    log("measuring")
    if options.start is None:
        return finish(recipe, out, held_out, facts)
    measured = measure_checkpoint(out, family, held_out)
    continue_card(out / "README.md", earlier, facts, measured, recorded, run.continuing.corpus)
    return measured


def more_takes(folder: Path, held_out: Sequence[Take]) -> list[Take]:
    """Returns digits of more speakers; raises `BadInput` if the held-out speaker is among them."""
    takes = load_fsdd(folder)
    for speaker in sorted({take.speaker for take in held_out} & {take.speaker for take in takes}):
        raise BadInput(f"{folder} has recordings of {speaker}, who is never trained on; expected other speakers")
    return takes


def check_start(family: str, recipe: Recipe, start: Path) -> Callable[[TrainingRun, Path], Any]:
    """Returns the recipe's `train_further`; raises `BadInput` unless it can train this checkpoint."""
    train_further: Callable[[TrainingRun, Path], Any] | None = getattr(recipe, "train_further", None)
    if train_further is None:
        raise BadInput(f"the demo of {family} cannot be trained further; leave out the checkpoint to start from")
    if not start.is_dir() or not FAMILIES[family].recognises(start) or not (start / "README.md").is_file():
        raise BadInput(f"{start} is not a checkpoint directory of {family}; expected one that this command wrote")
    return train_further


def finish(recipe: Recipe, directory: Path, held_out: Sequence[Take], facts: CardFacts) -> list[Measured]:
    """Measures the checkpoint and writes its card: as the recipe does, or else as a recogniser of an unseen speaker."""
    finish_recipe = getattr(recipe, "finish", None)
    if finish_recipe is not None:
        measured: list[Measured] = finish_recipe(directory, held_out, facts)
        return measured
    measured = measure_checkpoint(directory, facts.family, held_out)
    write_card(directory / "README.md", facts, measured)
    return measured


def recipe_of(family: str) -> Recipe:
    """Returns the family's recipe; raises `BadInput` if there is none."""
    recipes = {name: each.recipe for name, each in FAMILIES.items() if each.recipe}
    if family not in recipes:
        raise BadInput(f"there is no demo recipe for {family!r}; expected one of {', '.join(recipes)}")
    recipe: Recipe = load(recipes[family])
    return recipe
