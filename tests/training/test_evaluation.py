import numpy as np
import pytest

from tests.training.tones import loudest_digit, tone_takes
from workbench.training.data.augment import power
from workbench.training.data.digits import WORDS, words_of
from workbench.training.evaluation import CONDITIONS, evaluation_strings, in_white_noise, measure, under

TAKES = tone_takes("zoe")


@pytest.fixture(scope="module")
def strings():
    return evaluation_strings(TAKES, seed=1, count=40)


def test_evaluation_strings_have_the_requested_lengths_and_gaps(strings):
    assert len(strings) == 40
    assert {len(string.digits) for string in strings} == {3, 4, 5, 6, 7}
    for string in strings:
        assert string.text == words_of(string.digits) and string.speaker == "zoe"
        assert np.abs(string.samples).max() == pytest.approx(0.5, abs=1e-6)
        ends = [end for _, end, _ in string.spans]
        starts = [start for start, _, _ in string.spans]
        gaps = (np.array(starts[1:]) - np.array(ends[:-1])) / 16000
        assert gaps.min() >= 0.05 and gaps.max() <= 0.3001
        digits = [loudest_digit(string.samples[start:end]) for start, end, _ in string.spans]
        assert tuple(digits) == string.digits


@pytest.mark.parametrize("snr_db", [10.0, 20.0])
def test_white_noise_is_added_at_the_stated_ratio(strings, snr_db):
    for number, clean in enumerate(strings):
        loud = in_white_noise(clean, snr_db, np.random.default_rng(number))
        assert clean.digits == loud.digits
        added = loud.samples - clean.samples
        assert 10 * np.log10(power(clean.samples[clean.active]) / power(added)) == pytest.approx(snr_db, abs=0.01)
        spectrum = np.square(np.abs(np.fft.rfft(added)))
        halves = np.array_split(spectrum, 2)
        assert halves[0].mean() == pytest.approx(halves[1].mean(), rel=0.1)  # white: as strong above 4 kHz as below


def test_equal_seeds_give_equal_recordings(strings):
    repeated = evaluation_strings(TAKES, seed=1, count=40)
    assert all(np.array_equal(a.samples, b.samples) for a, b in zip(strings, repeated, strict=True))
    other = evaluation_strings(TAKES, seed=2, count=40)
    assert [string.digits for string in other] != [string.digits for string in strings]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_degraded_recordings_keep_labels_aligned_with_the_speech(strings, condition):
    for before, after in zip(strings[:5], under(condition, strings[:5]), strict=True):
        assert after.digits == before.digits
        assert np.isfinite(after.samples).all()
        background = power(after.samples[: after.spans[0][0] - 400])
        for (start, end, _), (was_start, was_end, _) in zip(after.spans, before.spans, strict=True):
            assert (end - start) / (was_end - was_start) == pytest.approx(
                len(after.samples) / len(before.samples), rel=0.02
            )
            assert power(after.samples[start:end]) > 4 * background


def test_word_error_rate_is_pooled_over_all_words(strings):
    truth = iter(strings)
    perfect = measure(lambda samples: next(truth).text, strings)
    assert perfect.wer == 0.0 and perfect.words.hits == sum(len(string.digits) for string in strings)

    truth = iter(strings)
    last_dropped = measure(lambda samples: " ".join(next(truth).text.split()[:-1]), strings)
    assert last_dropped.words.deletions == len(strings) and last_dropped.words.substitutions == 0
    assert last_dropped.wer == pytest.approx(len(strings) / perfect.words.reference_units)


def test_tone_recogniser_has_zero_word_error_rate_on_evaluation_strings(strings):
    by_sound = {string.samples.tobytes(): string for string in strings}

    def listen(samples):
        return " ".join(WORDS[loudest_digit(samples[a:b])] for a, b, _ in by_sound[samples.tobytes()].spans)

    assert measure(listen, strings).wer == 0.0
