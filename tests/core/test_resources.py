"""Closing of sessions of every kind: parts with a close method are closed once, others are ignored."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.core.resources import close
from workbench.pipelines.detection.detection_session import DetectionSession
from workbench.pipelines.detection.fsmn_vad import FsmnVad
from workbench.pipelines.recognition.fireredasr import FireRedAudioEncoder
from workbench.pipelines.recognition.funasr_nano import NanoAudioEncoder
from workbench.pipelines.recognition.paraformer import ParaformerPipeline
from workbench.pipelines.recognition.sensevoice import SenseVoicePipeline
from workbench.pipelines.recognition.speech_language import SpeechLanguagePipeline
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.pipelines.text.causal_lm import CausalLm
from workbench.pipelines.text.text_session import TextSession
from workbench.session.protocols import Session


class Part:
    """Counts how often it is closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def around(kind: type, **parts: Any) -> Any:
    """A pipeline of that kind with nothing but these parts."""
    made = kind.__new__(kind)
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def test_close_ignores_objects_without_a_close_method() -> None:
    part = Part()
    close(None, object(), part)
    assert part.closed == 1


@pytest.mark.parametrize("kind", [SenseVoicePipeline, ParaformerPipeline])
def test_a_speech_session_closes_its_network(kind: type) -> None:
    network = Part()
    session = SpeechSession("m", "r", around(kind, network=network, _head=None))
    session.close()
    session.close()
    assert network.closed == 1


@pytest.mark.parametrize("kind", [NanoAudioEncoder, FireRedAudioEncoder])
def test_speech_language_session_closes_the_encoder_and_the_language_model(kind: type) -> None:
    network, language = Part(), Part()
    pipeline = around(SpeechLanguagePipeline, encoder=around(kind, network=network), language=language)
    SpeechSession("m", "r", pipeline).close()
    assert (network.closed, language.closed) == (1, 1)


def test_text_and_detection_sessions_close_their_network_once() -> None:
    language, network = Part(), Part()
    sessions: list[Session] = [
        TextSession("m", "r", around(CausalLm, language=language)),
        DetectionSession("m", "r", around(FsmnVad, network=network)),
    ]
    for session in sessions:
        session.close()
        session.close()
    assert (language.closed, network.closed) == (1, 1)


def test_session_closes_without_error_when_its_network_has_no_close_method() -> None:
    SpeechSession("m", "r", around(SenseVoicePipeline, network=object(), _head=object())).close()
