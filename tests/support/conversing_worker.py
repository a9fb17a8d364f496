"""A session's process whose model answers conversations in text and speech; nothing heavy is imported.

The model's name says what it is: `fake-audio` speaks, `fake-text` writes only, `slow` waits after its first rows.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.fake_conversations import FakeAudioNetwork, FakeCodec, described
from workbench.core.settings import SessionSpec
from workbench.isolation import worker
from workbench.pipelines.conversation.conversation_session import ConversationSession

PATIENCE = 0.01  # seconds of a row of the slow model


class SlowNetwork(FakeAudioNetwork):
    """Takes its time for each row, so that somebody can stop it."""

    def logits(self, history: Any) -> np.ndarray:
        threading.Event().wait(PATIENCE)
        return super().logits(history)


def open_conversing(spec: SessionSpec) -> ConversationSession:
    """Instead of `workbench.isolation.loader.open_alone`."""
    name = Path(spec.name).name
    speaks = "text" not in name
    network: Any = SlowNetwork(context=2000, ends=-50.0) if name == "slow" else FakeAudioNetwork()
    codec: Any = FakeCodec() if speaks else None
    return ConversationSession(spec.name, spec.runtime, described(speaks=speaks), network, codec)


if __name__ == "__main__":
    worker.open_alone = open_conversing
    worker.CANCEL_SECONDS = 1.0
    worker.main()
