import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.shared_data import shared
from workbench.registry.registry import Registry
from workbench.text.rates import score
from workbench.training.data.digits import WORDS
from workbench.training.samples import RECIPES, write_samples

SAMPLES = Path(__file__).resolve().parents[2] / "assets" / "samples"
ENTRIES = json.loads((SAMPLES / "samples.json").read_text())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["file"])
def test_sample_files_match_their_entries_in_samples_json(entry):
    info = soundfile.info(SAMPLES / entry["file"])
    assert (info.samplerate, info.channels, info.subtype) == (16000, 1, "PCM_16")
    assert info.duration == pytest.approx(entry["seconds"], abs=0.01)
    assert entry["licence"] in ("CC BY-SA 4.0", "public domain") and entry["source"].endswith(
        ("librivox.org", "free-spoken-digit-dataset")
    )
    assert entry["text"] == entry["text"].lower().strip()


def test_samples_folder_holds_exactly_the_listed_files_below_3_mb():
    files = {path.name for path in SAMPLES.iterdir()}
    assert files == {entry["file"] for entry in ENTRIES} | {"samples.json", "README.md", "manifest.csv"}
    assert sum(path.stat().st_size for path in SAMPLES.iterdir()) < 3_000_000


def test_samples_readme_names_sources_and_licences():
    readme = (SAMPLES / "README.md").read_text()
    for needed in ("Zohar Jackson", "CC BY-SA 4.0", "LibriVox", "public domain"):
        assert needed in readme


def test_digit_sample_file_names_match_their_transcripts():
    texts = {entry["file"]: entry["text"] for entry in ENTRIES}
    assert texts["three_seven_one.wav"] == "three seven one"
    for recipe in RECIPES:
        words = [word for word in recipe.file.removesuffix(".wav").split("_") if word in WORDS]
        assert texts[recipe.file].split() == words or len(words) < 3


def test_long_digits_sample_has_pauses():
    samples, rate = soundfile.read(SAMPLES / "long_digits.wav")
    assert 38 < len(samples) / rate < 42
    blocks = np.sqrt(np.square(samples[: len(samples) // 800 * 800]).reshape(-1, 800).mean(axis=1))  # 50 ms
    quiet = "".join("q" if level < 0.02 * blocks.max() else "s" for level in blocks)
    assert sum(len(run) >= 14 for run in quiet.split("s")) >= 10  # of 0.7 s and more


def test_sample_script_reproduces_the_shipped_files(tmp_path):
    write_samples(shared("fsdd"), shared("speech"), tmp_path)
    for path in SAMPLES.iterdir():
        if path.suffix == ".wav":
            written, shipped = (soundfile.read(folder / path.name, dtype="int16")[0] for folder in (tmp_path, SAMPLES))
            assert np.abs(written.astype(int) - shipped).max() <= 1  # resamplers may differ in the last bit
        elif path.name != "manifest.csv":  # the input of Evaluate
            assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["sensevoice", "paraformer", "funasr-nano", "fireredasr"])
def test_demo_models_transcribe_the_longest_sample(name):
    """The sample is longer than the demos' training data; the cards of two demos state where to cut it."""
    longest = max(ENTRIES, key=lambda entry: entry["seconds"])
    with Registry() as registry, registry.open(f"demo/{name}", "pytorch", threads=1) as session:
        text = session.transcribe(SAMPLES / longest["file"]).text
    assert score(longest["text"], text).words.errors <= 2
