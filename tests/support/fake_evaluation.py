"""An evaluation without models: reads the manifest, and writes what fake models heard, one result at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.evaluations import model
from workbench.evaluation.manifests import read_manifest
from workbench.evaluation.rows import Result, Utterance, scores_of
from workbench.evaluation.store import Manifest, Run
from workbench.evaluation.writer import Writer, claimed, drafted, write_run
from workbench.text.rates import score


class FakeEvaluation:
    """`fake/sense` hears "eleven" for "seven"; others hear what is said. Waits for `gate` after `free` results."""

    def __init__(self, free: int = 10**9):
        self.gate, self.free = threading.Event(), free
        self.gate.set()

    def __call__(
        self,
        manifest: str,
        models: Sequence[str],
        out: Path,
        *,
        normaliser: str,
        limit: int | None,
        on_progress: Callable[[float, str], None],
        on_skipped: Callable[[Any], None],
        **others: Any,
    ) -> Any:
        found = read_manifest(manifest)
        good, bad = [], []
        for row in found.rows():
            if isinstance(row, Utterance):
                good.append(row)
            else:
                on_skipped(row)
                bad.append(row.to_dict())
        with claimed(out):
            with drafted(out, [*good, *bad]) as draft:
                place = Manifest(found.path, found.root, found.format, draft.digest, len(good), len(bad))
                run = Run(place, {"name": normaliser, "version": "1"}, tuple(map(model, models)), {"python": "3"})
                draft.accept()
                write_run(out, run)
            writer = Writer(out, run, models)
            asked = [(key, each) for key in models for each in good[:limit]]
            try:
                for done, (key, each) in enumerate(asked):
                    while done >= self.free and not self.gate.wait(0.02):
                        on_progress(done / len(asked), f"{key}: {done} of {len(good)}, about 3 s left")
                    on_progress(done / len(asked), f"{key}: {done} of {len(good)}")
                    writer.add(heard(key, each))
            finally:
                writer.close()
        return SimpleNamespace(notes=())


def heard(key: str, utterance: Utterance) -> Result:
    """What a fake model made of a recording."""
    text = utterance.text.replace("seven", "eleven") if key.startswith("fake/sense") else utterance.text
    measured = {"compute_seconds": 0.1, "cpu_seconds": 0.2, "memory_bytes": 64 << 20}
    scores = scores_of(score(utterance.text, text))
    return Result(utterance.id, key, text, audio_seconds=2.0, scores=scores, measured=measured)
