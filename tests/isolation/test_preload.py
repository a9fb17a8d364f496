"""Imports of prepared processes: they can be forked afterwards, and their sessions import few further modules."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.support.tiny_checkpoints import tiny_sensevoice
from workbench.core.settings import SessionSpec
from workbench.isolation.kinds import kind_of
from workbench.isolation.serial import ProcessSession
from workbench.prepared.pool import PREPARED
from workbench.registry.sources import assets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely")

MANY = 40  # modules; transformers alone has hundreds


@pytest.mark.parametrize("family, folder", [("funasr_nano", "demo-funasr-nano"), ("speechlm", "demo-speechlm")])
def test_forked_language_model_session_imports_few_further_modules(family: str, folder: str) -> None:
    spec = SessionSpec("demo", family, "pytorch", assets() / folder)
    kind = kind_of(spec)
    PREPARED.wait_for(kind, spec.name)
    with tempfile.TemporaryFile() as report:
        words = (spec.family, spec.runtime, str(spec.checkpoint))
        process = PREPARED.fork(kind, words, dict(os.environ), report.fileno(), "tests.support.counts_modules")
        assert process is not None and process.wait(60) == 0
        report.seek(0)
        imported = json.load(report)
    assert len(imported) < MANY, imported


def test_forked_session_gives_the_same_tokens_as_a_started_session(tmp_path: Path) -> None:
    spec = SessionSpec("tiny", "sensevoice", "pytorch", tiny_sensevoice(tmp_path))
    sound = np.random.default_rng(1).standard_normal(32000).astype(np.float32)
    tokens = []
    for on in (True, False):
        PREPARED.use(on)
        with ProcessSession(spec) as session:
            tokens.append(session.transcribe((sound, 16000)).tokens)
            assert session.pid is not None
            assert (psutil.Process(session.pid).ppid() == os.getpid()) is (not on)
    assert tokens[0] == tokens[1]
