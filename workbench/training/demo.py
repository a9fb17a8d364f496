"""`workbench train-demo`: trains a demo model and writes its checkpoint directory in the published format."""

from __future__ import annotations

import json
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import yaml

from workbench.errors import BadInput
from workbench.training.corpus import CorpusOptions
from workbench.training.digits import load_fsdd, split_by_speaker
from workbench.training.loop import TrainOptions, epochs, train
from workbench.training.model_card import CardFacts, Measured, measure_checkpoint, write_card
from workbench.training.pool import FeaturePool, cmvn_statistics, generate_pool, write_am_mvn
from workbench.training.voices import synthetic_takes

FAMILIES = {"sensevoice": "SenseVoiceLoss", "paraformer": "ParaformerLoss"}
"""Per family that has a recipe (`workbench.training.<family>`), its loss."""

GATED_SHARE = 0.4  # of the takes in the finishing strings

FRONTEND = {
    "fs": 16000,
    "window": "hamming",
    "n_mels": 80,
    "frame_length": 25,
    "frame_shift": 10,
    "lfr_m": 7,
    "lfr_n": 6,
    "cmvn_file": None,
}


@dataclass(frozen=True)
class DemoOptions:
    """What a user may choose of the training."""

    strings: int = 24_000  # in the pool of training strings
    workers: int = 2  # processes that make the pool
    threads: int = 2  # of torch
    cache: Path | None = None  # where synthetic voices and the pool stay; a temporary folder by default
    training: TrainOptions = field(default_factory=TrainOptions)
    finishing: TrainOptions = field(default_factory=lambda: TrainOptions(updates=2000, learning_rate=6e-4, warm_up=100))


def train_demo(family: str, data: Path, out: Path, options: DemoOptions, log: Callable[[str], None]) -> list[Measured]:
    """Trains the family's demo on the spoken digits in `data` and writes a checkpoint directory `out`.

    The last speaker in alphabetical order is never trained on; returns the word error rates measured on that speaker,
    which the model card in the directory states too. Raises `BadInput` for an unknown family or an unusable folder,
    `Unavailable` where the speech synthesisers are missing.
    """
    if family not in FAMILIES:
        raise BadInput(f"there is no demo recipe for {family!r}; there are {', '.join(FAMILIES)}")
    recipe: Any = import_module(f"workbench.training.{family}")
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file; expected a folder to write the checkpoint to")
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.training.seed)
    human, held_out = split_by_speaker(load_fsdd(data))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="workbench-train-") as temporary:
        cache = options.cache or Path(temporary)
        cache.mkdir(parents=True, exist_ok=True)
        log("speaking the synthetic voices")
        takes = human + synthetic_takes(cache)

        def make_pool(strings: int, seed: int, corpus: CorpusOptions) -> FeaturePool:
            def progress(share: float) -> None:
                log(f"making training strings: {share:.0%}")

            return generate_pool(takes, cache, strings, seed, corpus, options.workers, progress)

        seed = options.training.seed
        pool = make_pool(options.strings, seed, CorpusOptions())
        cmvn = cmvn_statistics(pool)
        make_loss = getattr(recipe, FAMILIES[family])
        network = recipe.network(options.training.dropout)
        parameters = sum(p.numel() for p in network.parameters())
        log(f"training {parameters:,} parameters on {len(pool):,} strings")
        network = train(
            make_loss(network), epochs(pool, cmvn, options.training.frames_per_batch), options.training, log
        )
        # Recordings of single words are often cut by their level, which takes weak consonants away.
        pool = make_pool(options.strings // 2, seed + 1, CorpusOptions(gated_share=GATED_SHARE))
        for number in range(recipe.FINISHING_ROUNDS):
            log(f"finishing on {len(pool):,} strings cut more tightly, round {number + 1} of {recipe.FINISHING_ROUNDS}")
            finishing = replace(options.finishing, seed=seed + number)
            network = train(make_loss(network), epochs(pool, cmvn, finishing.frames_per_batch), finishing, log)

    out.mkdir(parents=True, exist_ok=True)
    write_am_mvn(out / "am.mvn", *cmvn)
    recipe.write_vocabulary(out)
    configuration = recipe.configuration() | {"frontend": "WavFrontend", "frontend_conf": FRONTEND}
    (out / "config.yaml").write_text(yaml.safe_dump(configuration, sort_keys=False), encoding="utf-8")
    card = {
        "framework": "pytorch",
        "task": "auto-speech-recognition",
        "model": {"type": "funasr"},
        "pipeline": {"type": "funasr-pipeline"},
        "file_path_metas": recipe.FILES,
    }
    (out / "configuration.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    torch.save({name: value.detach().clone() for name, value in network.state_dict().items()}, out / "model.pt")

    log("measuring on the unseen speaker")
    measured = measure_checkpoint(out, family, held_out)
    facts = CardFacts(
        family=family,
        parameters=parameters,
        speakers=sorted({take.speaker for take in human}),
        held_out=sorted({take.speaker for take in held_out}),
        strings=options.strings,
        training=options.training,
        finishing_updates=recipe.FINISHING_ROUNDS * options.finishing.updates,
        minutes=(time.monotonic() - begun) / 60,
        machine=f"{platform.machine()}, {options.threads} threads, torch {torch.__version__}",
    )
    write_card(out / "README.md", facts, measured)
    return measured
