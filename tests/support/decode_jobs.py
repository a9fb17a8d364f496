"""Jobs of the Decode tab on the files of `tests.support.decoding_files`, and their results."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from panels.decode.run import Decodings, Job, prepare, run
from panels.running.sessions import SessionPool
from workbench.core.options import build_options
from workbench.decoding.ctc_options import CtcBeamOptions


def options(files: dict[str, Path], *names: str, **more: Any) -> CtcBeamOptions:
    given = {name: str(files[name]) for name in names}
    return build_options(CtcBeamOptions, {"beam_size": 16, **given, **more}, "the beam search")


def job(pool: SessionPool, files: dict[str, Path], chosen: CtcBeamOptions, reference: str = "", **more: Any) -> Job:
    sources = [str(each) for each in more.pop("logits", [files["logits"]])]
    return prepare(pool.registry, [], "", sources, str(files["tokens"]), "0", reference, chosen, **more)


def ran(pool: SessionPool, asked: Job) -> Decodings:
    kept = Decodings(asked)
    states = list(run(pool, kept, threading.Event()))
    assert states[-1].finished and kept.state is states[-1]
    return kept
