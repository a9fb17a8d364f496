"""Introspection of the package and its sessions: public names, signatures, help texts, and reprs."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.support.processes import FAKE_CHILD
from tests.support.tiny_checkpoints import tiny_sensevoice
from workbench.core.options import option_specs
from workbench.core.settings import SessionSpec
from workbench.decoding.ctc_options import CtcHeadOptions
from workbench.families import FAMILIES
from workbench.isolation import serial
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.registry.signatures import CALLS_FOR, CONVERSING, HEARING, METHOD_FOR, WRITING, session_class
from workbench.session.protocols import Session


def test_public_names_are_listed_by_dir() -> None:
    code = "import workbench; print(*dir(workbench))"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(workbench.__all__) <= set(listed) and "__version__" in listed and "TYPE_CHECKING" not in listed
    for name in workbench.__all__:
        assert getattr(workbench, name)


BEAM_SEARCH = {spec.name for spec in option_specs(CtcHeadOptions)}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_session_methods_have_the_family_options_in_signature_and_help(family: str) -> None:
    made = session_class(OpenSession, family)
    assert made is session_class(OpenSession, family) and issubclass(made, OpenSession)
    described = FAMILIES[family]
    takes, usual = CALLS_FOR[described.input], METHOD_FOR[described.input]
    refuses = set(HEARING + WRITING + CONVERSING) - {*takes, *(CONVERSING if described.chat_options_class else ())}
    specs = option_specs(FAMILIES[family].options_class)
    for name in (*takes, "trace"):
        signature = inspect.signature(getattr(made, name))
        own = inspect.signature(getattr(OpenSession, name))
        for spec in specs:
            parameter = signature.parameters[spec.name]
            assert parameter.kind is parameter.KEYWORD_ONLY and parameter.default == spec.default
            assert parameter.annotation is not parameter.empty
        assert list(signature.parameters)[: len(own.parameters) - 1] == list(own.parameters)[:-1]
        text = pydoc.plain(pydoc.render_doc(getattr(made, name)))
        assert "**options" not in text and "As `Session" not in text
        assert all(f"    {spec.name} (" in text and spec.help in text for spec in specs)
    if described.chat_options_class:
        for name in CONVERSING:
            shown = inspect.signature(getattr(made, name)).parameters
            chat = {spec.name for spec in option_specs(described.chat_options_class)}
            assert {"messages", "modalities"} | chat <= set(shown)
            # A CTC beam search transcribes; it answers no conversation.
            assert {spec.name for spec in specs} - chat == (BEAM_SEARCH if family == "funasr_nano" else set())
            assert shown["modalities"].default == "auto"
    for name in refuses:
        assert f"use `{usual}`" in str(getattr(made, name).__doc__)


def test_help_names_the_runtimes_of_limited_options() -> None:
    text = str(session_class(OpenSession, "fireredasr").transcribe.__doc__)
    [line] = [line for line in text.splitlines() if line.strip().startswith("beam_size")]
    assert line.endswith("; 1 to 64; on pytorch and gguf")
    assert "embeddings" in inspect.signature(session_class(OpenSession, "causal_lm").trace).parameters


class Recorder(Session):
    """Takes any options, and keeps them."""

    model, runtime, load_seconds = "m", "pytorch", 0.0

    def trace(self, *given: Any, **options: Any) -> Any:
        self.given = (*given, options)


def test_session_methods_pass_all_arguments_on(tmp_path: Path) -> None:
    spec, held = SessionSpec("m", "sensevoice", "pytorch", tmp_path), Recorder()
    made = session_class(OpenSession, "sensevoice")(spec, held, lambda options: options, lambda spec: None)
    made.trace("x", "encoder.*", itn=True, nonsense=3)
    assert held.given == ("x", "encoder.*", None, None, {"itn": True, "nonsense": 3})
    assert repr(made) == "<session of m on pytorch: loaded>"


def test_registry_and_session_reprs_are_one_line(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serial, "CHILD", FAKE_CHILD)
    count = len(registry.cards())
    assert repr(registry).startswith(f"<Registry: {count} models, 0 sessions in 0 ")
    session = registry.open(tiny_sensevoice(tmp_path / "tiny"))
    assert repr(session) == f"<session of {tmp_path / 'tiny'} on pytorch: idle>" and isinstance(session, Session)
    assert f"{count} models, 1 session in " in repr(registry)
    registry.unload(session.model, "pytorch")
    assert repr(session).endswith(": unloaded>")
    session.close()
    assert repr(session).endswith(": closed>")
    registry.close()
    assert repr(registry).startswith("<Registry: closed, ")
