import numpy as np
import pytest

from tests.training.tones import tone_takes
from workbench.audio.cmvn import read_am_mvn
from workbench.training.data import pool as pools
from workbench.training.data.augment import MaskOptions
from workbench.training.data.corpus import CorpusOptions, draw_string, log_mel
from workbench.training.data.digits import split_by_speaker
from workbench.training.data.pool import FeaturePool, JoinedPools, cmvn_statistics, generate_pool, write_am_mvn
from workbench.training.data.take_bank import TakeBank

TAKES = tone_takes("anna", "max", takes=1)
OPTIONS = CorpusOptions(lengths={1: 1, 2: 1, 3: 1}, lead_seconds=(0.05, 0.2))


@pytest.fixture(scope="module")
def small_shards():
    patch = pytest.MonkeyPatch()
    patch.setattr(pools, "SHARD", 8)
    yield
    patch.undo()


@pytest.fixture(scope="module")
def pool(small_shards, tmp_path_factory):
    return generate_pool(TAKES, tmp_path_factory.mktemp("cache"), 20, seed=5, options=OPTIONS, workers=0)


def test_feature_pool_holds_the_strings_drawn_with_its_seed(pool):
    bank = TakeBank.of(TAKES, OPTIONS.tempos)
    assert len(pool) == 20
    for number in (0, 7, 8, 19):
        string = draw_string(bank, np.random.default_rng([5, number]), OPTIONS)
        assert pool.digits[number] == string.digits
        expected = log_mel(string.samples)
        np.testing.assert_allclose(pool.log_mel(number), expected, atol=0.01)
        assert pool.example(number).features.shape == (pool.lengths[number], 560)


def test_worker_processes_make_the_same_pool(small_shards, tmp_path):
    takes = tone_takes("anna", takes=1)
    expected = generate_pool(takes, tmp_path / "alone", 20, seed=1, options=OPTIONS, workers=0)
    shared = generate_pool(takes, tmp_path / "shared", 20, seed=1, options=OPTIONS, workers=2)
    assert expected.digits == shared.digits
    for number in range(20):
        np.testing.assert_array_equal(expected.log_mel(number), shared.log_mel(number))


def test_finished_pool_is_reused_and_unfinished_pool_is_regenerated(pool, monkeypatch, tmp_path):
    monkeypatch.setattr(pools, "_make_shard", lambda *_: pytest.fail("made again"))
    repeated = generate_pool(TAKES, pool.directory.parent, 20, seed=5, options=OPTIONS, workers=0)
    assert repeated.digits == pool.digits
    with pytest.raises(pytest.fail.Exception, match="made again"):
        generate_pool(TAKES, pool.directory.parent, 20, seed=6, options=OPTIONS, workers=0)
    monkeypatch.undo()
    monkeypatch.setattr(pools, "SHARD", 8)
    finished = generate_pool(TAKES, tmp_path, 20, seed=5, options=OPTIONS, workers=0)
    (finished.directory / "pool.json").unlink()  # as if the run had been stopped
    assert generate_pool(TAKES, tmp_path, 20, seed=5, options=OPTIONS, workers=0).digits == pool.digits


def test_pool_name_depends_on_takes_options_count_and_seed(pool):
    def name(takes=TAKES, options=OPTIONS, count=20, seed=5):
        return pools._digest(takes, options, count, seed)

    assert pool.directory.name == f"pool-{name()}"
    others = {name(TAKES[1:]), name(options=CorpusOptions()), name(count=21), name(seed=6)}
    assert len(others) == 4 and name() not in others


def test_pool_generation_reports_progress(small_shards, tmp_path):
    fractions = []
    generate_pool(TAKES, tmp_path, 20, seed=9, options=OPTIONS, workers=0, progress=fractions.append)
    assert fractions == pytest.approx([1 / 3, 2 / 3, 1.0])


def test_epoch_contains_every_example_once_in_batches_of_bounded_size(pool):
    longest = int(pool.lengths.max())
    batches = list(pool.batches(3 * longest, np.random.default_rng(0)))
    assert sorted(np.concatenate(batches).tolist()) == list(range(20))
    assert all(len(batch) * pool.lengths[batch].max() <= 3 * longest for batch in batches)
    assert len(batches) < 20
    other = list(pool.batches(3 * longest, np.random.default_rng(1)))
    assert [batch.tolist() for batch in batches] != [batch.tolist() for batch in other]


def test_joined_pools_have_the_examples_of_each_in_order(pool, tmp_path):
    other = generate_pool(TAKES, tmp_path, count=7, seed=6, options=OPTIONS, workers=0)
    joined = JoinedPools([pool, other, pool])
    parts = [(part, place) for part in (pool, other, pool) for place in range(len(part))]
    assert len(joined) == len(parts) == len(joined.frames)
    for number, (part, place) in enumerate(parts):
        assert np.array_equal(joined.example(number, stack=False).features, part.example(place, stack=False).features)
        assert (joined.digits[number], joined.spans[number]) == (part.digits[place], part.spans[place])
        assert joined.frames[number] == part.frames[place]


def test_a_batch_is_normalised_and_padded_with_zeros(pool):
    shift, scale = cmvn_statistics(pool)
    batch = pool.batch([3, 11, 4], shift, scale)
    assert batch.features.shape == (3, pool.lengths[[3, 11, 4]].max(), 560)
    assert batch.lengths.tolist() == pool.lengths[[3, 11, 4]].tolist()
    assert batch.digits == (pool.digits[3], pool.digits[11], pool.digits[4])
    for row, length, number in zip(batch.features, batch.lengths, (3, 11, 4), strict=True):
        np.testing.assert_array_equal(row[:length], (pool.example(number).features + shift) * scale)
        assert not row[length:].any()


def test_masks_are_drawn_anew_for_every_batch(pool):
    shift, scale = cmvn_statistics(pool)
    rng = np.random.default_rng(0)
    first, second = (pool.batch([3], shift, scale, rng, MaskOptions(5.0)).features for _ in range(2))
    assert not np.array_equal(first, second)


def test_cmvn_statistics_give_zero_mean_and_unit_variance_per_band(pool):
    shift, scale = cmvn_statistics(pool)
    assert shift.shape == scale.shape == (560,)
    np.testing.assert_array_equal(shift, np.tile(shift[:80], 7))
    frames = np.concatenate([pool.log_mel(number) for number in range(len(pool))])
    normalised = (frames + shift[:80]) * scale[:80]
    np.testing.assert_allclose(normalised.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(normalised.std(axis=0), 1, atol=1e-3)


def test_am_mvn_file_round_trips_exactly(pool, tmp_path):
    shift, scale = cmvn_statistics(pool)
    write_am_mvn(tmp_path / "am.mvn", shift, scale)
    back = read_am_mvn(tmp_path / "am.mvn")
    np.testing.assert_array_equal(back.shift, shift)
    np.testing.assert_array_equal(back.scale, scale)
    lines = (tmp_path / "am.mvn").read_text().splitlines()
    assert lines[:4] == ["<Nnet>", "<Splice> 560 560", "[ 0 ]", "<AddShift> 560 560"]
    assert lines[4].startswith("<LearnRateCoef> 0 [ ") and lines[4].endswith(" ]")
    # How FunASR reads it: the fields of the line after the tag, from the fourth to the one before the bracket.
    assert [float(field) for field in lines[6].split()[3:-1]] == pytest.approx(scale.tolist())
    assert lines[5] == "<Rescale> 560 560" and lines[7] == "</Nnet>"


def test_training_features_do_not_depend_on_the_held_out_speaker(tmp_path):
    feature_pools = [
        generate_pool(
            split_by_speaker(TAKES + tone_takes("zoe", takes=takes))[0], tmp_path, 4, options=OPTIONS, workers=0
        )
        for takes in (1, 2)
    ]
    assert isinstance(feature_pools[0], FeaturePool) and feature_pools[0].directory == feature_pools[1].directory
