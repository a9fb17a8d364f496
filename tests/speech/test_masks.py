"""Masks of allowed ids against a rule that checks every id of the vocabulary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.speech_layouts import LAYOUT, layouts
from workbench.speech.layout import SpeechLayout
from workbench.speech.masks import allowed, needed_logits
from workbench.speech.phases import Kind, Phase


def may_follow(number: int, phase: Phase, layout: SpeechLayout) -> bool:
    """Returns whether an id of stream 0 may follow, by the definition."""
    if phase.kind is Kind.END or phase.forced is not None:
        return False
    if phase.kind is Kind.MARKER:
        return number in (layout.text, layout.audio)
    if number in (layout.eos, layout.eot):
        return phase.closes
    if phase.kind is Kind.TEXT:
        return layout.text_first <= number < layout.text_end
    return layout.codec_first <= number < layout.codec_first + layout.layer_size


PHASES = st.sampled_from(
    [
        *(Phase(kind, closes=closes) for kind in (Kind.TEXT, Kind.AUDIO) for closes in (False, True)),
        Phase(Kind.MARKER),
        Phase(Kind.MARKER, forced=3),
        Phase(Kind.CLOSE, forced=3),
        Phase(Kind.END, finish="stop"),
    ]
)


@given(layouts(), PHASES)
def test_mask_contains_exactly_the_allowed_ids(layout: SpeechLayout, phase: Phase) -> None:
    needed = needed_logits(phase, layout)
    expected = [number for number in range(layout.vocabulary) if may_follow(number, phase, layout)]
    assert allowed(needed.main).tolist() == expected
    assert needed.codec == (phase.kind is Kind.AUDIO)
    assert all(one[1] < two[0] for one, two in zip(needed.main, needed.main[1:]))  # in order, none touches the next


def test_adjacent_closing_ids_form_one_interval() -> None:
    assert needed_logits(Phase(Kind.TEXT, closes=True), LAYOUT).main == ((2, 4), (12, 30))
    assert needed_logits(Phase(Kind.AUDIO), LAYOUT).main == ((30, 36),)


@given(layouts())
def test_intervals_of_a_vocabulary_share_no_id(layout: SpeechLayout) -> None:
    parts = [(0, layout.text_first), (layout.text_first, layout.text_end)]
    parts += [layout.interval(stream) for stream in range(layout.streams)]
    owned = [number for first, end in parts for number in range(first, end)]
    assert len(owned) == len(set(owned)) and max(owned) == layout.vocabulary - 1
    assert layout.pads.tolist() == [layout.interval(stream)[0] for stream in range(layout.streams)]
    assert layout.row(layout.eos).tolist() == [layout.eos] + [layout.pad] * (layout.streams - 1)
