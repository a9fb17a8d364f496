"""The view of quantisation: types side by side give the picture of one after another, also without room for two."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.visualise.conftest import SceneOf
from workbench.core.errors import Unavailable
from workbench.registry.registry import Registry
from workbench.visualise.builders import quantised
from workbench.visualise.options import ViewOptions
from workbench.visualise.run import picture_of
from workbench.visualise.scene import Scene

TYPES = ("q8_0", "q4_0")


class RoomForOne:
    """A registry that refuses a session while another one is open."""

    def __init__(self, registry: Registry):
        self._registry, self._room = registry, threading.Lock()
        self.refused = 0

    @contextlib.contextmanager
    def open(self, *model: Any, **settings: Any) -> Iterator[Any]:
        if not self._room.acquire(blocking=False):
            self.refused += 1
            raise Unavailable("there is no room for two models")
        try:
            with self._registry.open(*model, **settings) as session:
                yield session
        finally:
            self._room.release()


def errors(scene: Scene) -> np.ndarray:
    picture = picture_of(scene, "quantisation", ViewOptions(types=TYPES))
    assert not picture.notes
    values: np.ndarray = picture["errors"].values
    return values


def test_types_side_by_side_give_the_picture_of_one_after_another(
    registry: Registry, scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = []
    for processors in (1, 2):
        monkeypatch.setattr(quantised, "available_processors", lambda count=processors: count)
        scene = scene_of("demo/sensevoice", fresh=True)
        pictures.append(errors(scene))
    one_room = RoomForOne(registry)
    scene = scene_of("demo/sensevoice", fresh=True)
    scene.registry = one_room  # type: ignore[assignment]
    pictures.append(errors(scene))
    assert one_room.refused > 0
    assert len(pictures[0]) == len(TYPES) and np.isfinite(pictures[0]).all()
    np.testing.assert_array_equal(pictures[1], pictures[0])
    np.testing.assert_array_equal(pictures[2], pictures[0])


def test_type_that_cannot_be_opened_is_named_with_the_reason(
    registry: Registry, scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WithoutQ4(RoomForOne):
        @contextlib.contextmanager
        def open(self, *model: Any, **settings: Any) -> Iterator[Any]:
            if settings.get("quantization") == "q4_0":
                raise Unavailable("q4_0 does not exist here")
            with self._registry.open(*model, **settings) as session:
                yield session

    monkeypatch.setattr(quantised, "available_processors", lambda: 2)
    scene = scene_of("demo/sensevoice", fresh=True)
    scene.registry = WithoutQ4(registry)  # type: ignore[assignment]
    picture = picture_of(scene, "quantisation", ViewOptions(types=TYPES))
    assert len(picture["errors"].values) == 1
    assert picture.notes == ("q4_0: q4_0 does not exist here",)


def test_long_recording_is_compared_by_its_first_seconds(scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_of("demo/sensevoice", fresh=True)
    assert scene.recording is not None and scene.recording.seconds > 1
    beginning = Scene(scene.session, scene.card, (scene.recording.samples[:16000], 16000), {}, scene.registry)
    expected = errors(beginning)
    monkeypatch.setattr(quantised, "LONGEST_SECONDS", 1.0)
    picture = picture_of(scene, "quantisation", ViewOptions(types=TYPES))
    assert picture.notes == ("The errors are those of the first 1 s of the recording.",)
    np.testing.assert_array_equal(picture["errors"].values, expected)


def test_messages_are_compared_as_they_are(scene_of: SceneOf, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_of("demo/speechlm", fresh=True)
    audio = {"type": "audio", "audio": str(scene.source)}
    talk = Scene(scene.session, scene.card, [{"role": "user", "content": [audio]}], {}, scene.registry)
    monkeypatch.setattr(quantised, "LONGEST_SECONDS", 1.0)
    assert quantised._source_of(scene) is not scene.source
    assert quantised._source_of(talk) is talk.source
