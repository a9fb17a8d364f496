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
from workbench.registry.signatures import (
    CALLS_FOR,
    CONVERSE_CALLS,
    GENERATE_CALLS,
    METHOD_FOR,
    TRANSCRIBE_CALLS,
    session_class,
)
from workbench.session.protocols import Session


def test_public_names_are_listed_by_dir() -> None:
    code = "import workbench; print(*dir(workbench))"
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(workbench.__all__) <= set(names) and "__version__" in names and "TYPE_CHECKING" not in names
    for name in workbench.__all__:
        assert getattr(workbench, name)


BEAM_SEARCH = {spec.name for spec in option_specs(CtcHeadOptions)}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_session_methods_have_the_family_options_in_signature_and_help(family: str) -> None:
    session_type = session_class(OpenSession, family)
    assert session_type is session_class(OpenSession, family) and issubclass(session_type, OpenSession)
    declared_family = FAMILIES[family]
    takes, usual = CALLS_FOR[declared_family.input], METHOD_FOR[declared_family.input]
    refuses = set(TRANSCRIBE_CALLS + GENERATE_CALLS + CONVERSE_CALLS) - {
        *takes,
        *(CONVERSE_CALLS if declared_family.chat_options_class else ()),
    }
    specs = option_specs(FAMILIES[family].options_class)
    for name in (*takes, "trace"):
        signature = inspect.signature(getattr(session_type, name))
        base_signature = inspect.signature(getattr(OpenSession, name))
        for spec in specs:
            parameter = signature.parameters[spec.name]
            assert parameter.kind is parameter.KEYWORD_ONLY and parameter.default == spec.default
            assert parameter.annotation is not parameter.empty
        assert list(signature.parameters)[: len(base_signature.parameters) - 1] == list(base_signature.parameters)[:-1]
        text = pydoc.plain(pydoc.render_doc(getattr(session_type, name)))
        assert "**options" not in text and "As `Session" not in text
        assert all(f"    {spec.name} (" in text and spec.help in text for spec in specs)
    if declared_family.chat_options_class:
        for name in CONVERSE_CALLS:
            parameters = inspect.signature(getattr(session_type, name)).parameters
            chat = {spec.name for spec in option_specs(declared_family.chat_options_class)}
            assert {"messages", "modalities"} | chat <= set(parameters)
            # A CTC beam search transcribes; it answers no conversation.
            assert {spec.name for spec in specs} - chat == (BEAM_SEARCH if family == "funasr_nano" else set())
            assert parameters["modalities"].default == "auto"
    for name in refuses:
        assert f"use `{usual}`" in str(getattr(session_type, name).__doc__)


def test_help_names_the_runtimes_of_limited_options() -> None:
    text = str(session_class(OpenSession, "fireredasr").transcribe.__doc__)
    [line] = [line for line in text.splitlines() if line.strip().startswith("beam_size")]
    assert line.endswith("; 1 to 64; on pytorch and gguf")
    assert "embeddings" in inspect.signature(session_class(OpenSession, "causal_lm").trace).parameters


class Recorder(Session):
    """Records the arguments and options of a call."""

    model, runtime, load_seconds = "m", "pytorch", 0.0

    def trace(self, *arguments: Any, **options: Any) -> Any:
        self.arguments = (*arguments, options)


def test_session_methods_pass_all_arguments_on(tmp_path: Path) -> None:
    spec, recorder = SessionSpec("m", "sensevoice", "pytorch", tmp_path), Recorder()
    session = session_class(OpenSession, "sensevoice")(spec, recorder, lambda options: options, lambda spec: None)
    session.trace("x", "encoder.*", itn=True, nonsense=3)
    assert recorder.arguments == ("x", "encoder.*", None, None, {"itn": True, "nonsense": 3})
    assert repr(session) == "<session of m on pytorch: loaded>"


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
