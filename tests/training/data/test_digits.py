import numpy as np
import pytest
import soundfile

from tests.support.shared_data import shared
from tests.training.tones import tone, tone_takes
from workbench.core.errors import BadInput
from workbench.training.data.digits import load_fsdd, split_by_speaker, words_of


def write_take(path, digit=3, rate=8000):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, tone(digit, 0.1, rate), rate)


def test_nested_and_flat_layouts_are_read_in_a_fixed_order(tmp_path):
    write_take(tmp_path / "nina" / "7_nina_10.wav", 7)
    write_take(tmp_path / "nina" / "7_nina_9.wav", 7, rate=11025)
    write_take(tmp_path / "1_a_b_0.wav", 1)
    (tmp_path / "README.md").write_text("not a take")
    write_take(tmp_path / "hello.wav")
    takes = load_fsdd(tmp_path)
    assert [(take.speaker, take.digit, take.number) for take in takes] == [
        ("a_b", 1, 0),
        ("nina", 7, 9),
        ("nina", 7, 10),
    ]
    assert [take.sample_rate for take in takes] == [8000, 11025, 8000]
    np.testing.assert_allclose(takes[0].samples, tone(1, 0.1, 8000), atol=1 / 32768)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "is not a folder"),
        ({}, "holds no recordings named DIGIT_SPEAKER_NUMBER.wav"),
        ({"3_x_0.wav": b"hello, no sound"}, "cannot be read as a sound file"),
    ],
)
def test_folder_without_usable_takes_raises_an_error(tmp_path, files, message):
    folder = tmp_path / "data"
    if files is not None:
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        load_fsdd(folder)


def test_empty_recording_raises_an_error_with_the_file_name(tmp_path):
    soundfile.write(tmp_path / "3_x_0.wav", np.zeros(0, dtype=np.float32), 8000)
    with pytest.raises(BadInput, match=r"3_x_0\.wav holds no samples"):
        load_fsdd(tmp_path)


def test_the_last_speaker_is_held_out_unless_another_is_named():
    takes = tone_takes("zoe", "anna", "max")
    training, held_out = split_by_speaker(takes)
    assert {take.speaker for take in training} == {"anna", "max"}
    assert {take.speaker for take in held_out} == {"zoe"}
    assert len(training) + len(held_out) == len(takes)
    assert {take.speaker for take in split_by_speaker(takes, "anna")[1]} == {"anna"}


def test_impossible_speaker_split_is_refused():
    with pytest.raises(BadInput, match="at least two speakers, found 1"):
        split_by_speaker(tone_takes("anna"))
    with pytest.raises(BadInput, match="no speaker 'tom' among anna, max"):
        split_by_speaker(tone_takes("anna", "max"), "tom")


def test_digits_are_converted_to_words():
    assert words_of((3, 7, 1)) == "three seven one"
    assert words_of(()) == ""


def test_the_spoken_digit_dataset_is_complete():
    takes = load_fsdd(shared("fsdd"))
    training, held_out = split_by_speaker(takes)
    assert (len(training), len(held_out)) == (2000, 500)
    assert {take.speaker for take in held_out} == {"yweweler"}
    assert "yweweler" not in {take.speaker for take in training}
