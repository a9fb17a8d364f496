"""The commands that make models: `workbench convert` and `workbench train-demo`. Other modules do the work."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from workbench.cli.transcribe import ProgressLine
from workbench.core.errors import BadInput
from workbench.core.options import check_value, option, option_specs
from workbench.core.packages import TRAINING, check_packages
from workbench.core.settings import check_setting
from workbench.decoding.generation import MAX_SEED
from workbench.registry.registry import Registry

Say = Callable[[str], None]
"""A function that prints a sentence on stderr."""


@dataclass(frozen=True)
class Training:
    """The user's options for the training of a demo model, besides threads and folders."""

    scale: float = option(
        1.0,
        "share of the shipped demo's training steps; 0.1 trains a worse model sooner",
        above=0.0,
        maximum=100.0,  # the shipped demos train for about an hour, so this takes days
    )
    seed: int = option(0, "seed of the training strings and of the weights", minimum=0, maximum=MAX_SEED)


def convert_model(parsed: argparse.Namespace, say: Say) -> Iterator[str]:
    """Writes a checkpoint's weights as requested; yields the files with their sizes, or the possible sizes."""
    from workbench.conversion.command import check_request
    from workbench.registry.sources import fetch

    with Registry() as registry:
        card = registry.card(parsed.model)
        registry.options_class(parsed.model)  # raises for an unknown family
    if card.kind == "gguf":
        raise BadInput(f"{parsed.model} is a GGUF file already; expected a model's id or a checkpoint directory")
    request = check_request(
        parsed.target, parsed.quantization, parsed.out, parsed.layout, parsed.list, force=parsed.force
    )
    if not parsed.list:
        request.check()
    progress = ProgressLine()
    try:
        directory = fetch(card, progress.fetching)
        if parsed.list:
            yield request.sizes(directory, card.family)
            return
        files = request.write(directory, card.family, progress.fetching, say)
    finally:
        progress.clear()
    for path, size in files:
        yield f"{path}\t{size}"


def train_model(parsed: argparse.Namespace, say: Say) -> Iterator[str]:
    """Trains a demo model and yields the word error rates that it reaches."""
    threads = check_setting("threads", parsed.threads, f"--threads is {parsed.threads}")
    updates_scale, seed = (
        check_value(spec, getattr(parsed, spec.name), f"--{spec.name} is {getattr(parsed, spec.name)}")
        for spec in option_specs(Training)
    )
    for name in ("other_speech", "more_speakers"):
        if getattr(parsed, name) is not None and parsed.start is None:
            flag = f"--{name.replace('_', '-')}"
            raise BadInput(f"{flag} is for the training of an existing checkpoint; name it with --continue")
    check_packages("training needs", TRAINING, "pip install 'speech-workbench[train]'")
    from workbench.training.demo import DemoOptions, train_demo

    options = DemoOptions(
        threads=threads,
        workers=threads,
        cache=parsed.cache,
        seed=seed,
        updates_scale=updates_scale,
        start=parsed.start,
        other_speech=parsed.other_speech,
        more_speakers=parsed.more_speakers,
    )
    for row in train_demo(parsed.family, parsed.data, parsed.out, options, say):
        yield f"{row.word_error_rate:.1%}\t{row.condition}\t{row.digits} digits"
