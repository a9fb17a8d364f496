"""The results directory after a kill, a full disk, or access by another process."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.evaluations import MODELS, make_evaluation, model, result, utterances
from workbench.core.errors import BadInput, Unavailable
from workbench.evaluation.rows import MEASURED, Result, Utterance
from workbench.evaluation.store import RESULTS, RUN, SKIPPED, UTTERANCES, Evaluation, read, shards, slug
from workbench.evaluation.writer import Writer, claimed, merged


def test_written_results_are_read_back(tmp_path: Path) -> None:
    evaluation = make_evaluation(tmp_path / "out", 25, shard_rows=10)
    assert list(evaluation.utterances()) == utterances(25)
    assert evaluation.models == MODELS and evaluation.done() == dict.fromkeys(MODELS, 25)
    assert [each.id for each in evaluation.results(MODELS[1])] == [each.id for each in evaluation.utterances()]
    assert [path.name for path in shards(evaluation.path, MODELS[0])] == ["00000.jsonl", "00001.jsonl", "00002.jsonl"]
    [skipped] = evaluation.skipped()
    assert skipped["where"] == "list.csv, line 7" and evaluation.run.manifest.skipped == 1
    for each in evaluation.results():
        assert Result.from_line(each.to_line()) == each
        if each.rates:
            assert each.rates.words.reference_units == each.scores["words"]["length"]


def test_measurements_are_the_last_key_of_a_result_line(tmp_path: Path) -> None:
    evaluation = make_evaluation(tmp_path / "out", 5)
    [shard] = shards(evaluation.path, MODELS[0])
    for line in shard.read_text(encoding="utf-8").splitlines():
        assert list(json.loads(line))[-1] == MEASURED


def rows(evaluation: Evaluation) -> dict[str, bytes]:
    return {
        str(path.relative_to(evaluation.path)): path.read_bytes()
        for path in sorted(evaluation.path.glob(f"{RESULTS}/*/*"))
    }


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.floats(0, 1), order=st.randoms(use_true_random=False))
def test_file_cut_at_any_byte_loses_at_most_one_row(
    tmp_path_factory: pytest.TempPathFactory, cut: float, order: random.Random
) -> None:
    full = make_evaluation(tmp_path_factory.mktemp("whole") / "out", 12, MODELS[:1], shard_rows=5)
    expected, by_id = rows(full), {each.id: each for each in full.results()}
    with claimed(full.path):
        for shard in shards(full.path, MODELS[0]):
            shard.unlink()
        writer = Writer(full.path, full.run, MODELS[:1])
        ids = [each.id for each in full.utterances()]
        for position in order.sample(range(12), 9):
            writer.add(by_id[ids[position]])
        writer.abandon()  # as after a kill
        killed = order.choice(shards(full.path, MODELS[0]))
        content = killed.read_bytes()
        remaining = content[: round(cut * len(content))]
        killed.write_bytes(remaining)
        count = sum(1 for _ in full.results())
        writer = Writer(full.path, full.run, MODELS[:1])
        todo = writer.todo(MODELS[0])
        assert len(todo) == 12 - count
        assert writer.torn <= 1
        order.shuffle(todo)
        for position in todo:
            assert writer.add(by_id[ids[position]])
            assert not writer.add(by_id[ids[position]]), "each exactly once"
        writer.close()
    assert rows(full) == expected


def test_damaged_duplicate_and_foreign_rows_are_removed(tmp_path: Path) -> None:
    evaluation = make_evaluation(tmp_path / "out", 8, MODELS[:1])
    [shard] = shards(evaluation.path, MODELS[0])
    expected, lines = shard.read_bytes(), shard.read_bytes().splitlines(keepends=True)
    foreign = lines[1].replace(MODELS[0].encode(), b"demo/other|gguf|f32")
    odd = [b"[" * 100_000 + b"\n", lines[3].replace(b'"measured"', b'"words": 5, "measured"')]
    damaged = [lines[0], b"\0\0\0\0\n", lines[2], lines[0], foreign, lines[3][:40] + b"\n", b"7\n", *odd, *lines[4:]]
    shard.write_bytes(b"".join(damaged))
    assert len(list(evaluation.results())) == 7, "the reader skips torn and duplicate rows"
    with claimed(evaluation.path):
        writer = Writer(evaluation.path, evaluation.run, MODELS[:1])
        assert (writer.todo(MODELS[0]), writer.todo(MODELS[0], 3), writer.torn) == ([1, 3], [1], 7)
        for position in (3, 1):
            writer.add(Result.from_line(lines[position]))
        writer.close()
    assert shard.read_bytes() == expected


def test_full_disk_raises_an_error_and_leaves_complete_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    evaluation = make_evaluation(tmp_path / "out", 6, MODELS[:1])
    results = list(evaluation.results())
    [shard] = shards(evaluation.path, MODELS[0])
    expected = shard.read_bytes()
    shard.unlink()
    write, room = os.write, len(expected) // 2

    def until_full(file: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(28, "No space left on device")
        nbytes = write(file, data[:room])
        room -= nbytes
        return nbytes

    with claimed(evaluation.path):
        writer = Writer(evaluation.path, evaluation.run, MODELS[:1])
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", until_full)
            with pytest.raises(Unavailable, match="the disk is full"):
                list(map(writer.add, results))
        writer.abandon()
        assert shard.read_bytes().endswith(b"\n") and 1 <= len(list(evaluation.results())) < 6
        writer = Writer(evaluation.path, evaluation.run, MODELS[:1])
        for row in results:
            writer.add(row)
        writer.close()
    assert shard.read_bytes() == expected


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with claimed(tmp_path / "out"), pytest.raises(BadInput, match="another evaluation is at work"):
        claimed(tmp_path / "out").__enter__()
    with claimed(tmp_path / "out"):
        pass


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BadInput, match=r"holds other files, such as thesis\.tex"):
        claimed(tmp_path).__enter__()
    with pytest.raises(BadInput, match="is a file; expected the directory"):
        claimed(tmp_path / "thesis.tex").__enter__()


def test_resumed_run_with_different_settings_is_refused(tmp_path: Path) -> None:
    evaluation = make_evaluation(tmp_path / "out", 3)
    run, first = evaluation.run, evaluation.run.models[0]
    assert merged(evaluation.path, run) == run
    assert merged(tmp_path / "none", run) == run
    extended = merged(evaluation.path, replace(run, models=(model("demo/paraformer|pytorch"),)))
    assert [each.key for each in extended.models] == [*MODELS, "demo/paraformer|pytorch"], "others may be added"
    relocated = replace(run, manifest=replace(run.manifest, path="/other/list.csv", root="/other"))
    assert merged(evaluation.path, relocated).manifest.root == "/other", "the run may continue on another machine"
    changes = {
        "is not the corpus that": {"manifest": replace(run.manifest, digest="0")},
        "the normaliser basic .version 1., and none": {"normaliser": {"name": "none", "version": "1"}},
        "the checkpoint of demo/sensevoice.pytorch has changed": {"models": (replace(first, checkpoint="0"),)},
        "ran in .* with language unset, and now it is 'en'": {"models": (replace(first, options={"language": "en"}),)},
        "with threads unset, and now it is 2": {"models": (replace(first, settings={"threads": 2}),)},
    }
    for sentence, change in changes.items():
        with pytest.raises(BadInput, match=sentence):
            merged(evaluation.path, replace(run, **change))


def test_directory_without_a_valid_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"holds no run\.json; expected a directory"):
        read(tmp_path)
    for text, sentence in (
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ('{"format": 9}', "format 9"),
        ('{"format": 1}', "is not whole"),
    ):
        (tmp_path / RUN).write_text(text, encoding="utf-8")
        with pytest.raises(BadInput, match=sentence):
            read(tmp_path)
    evaluation = make_evaluation(tmp_path / "out", 3)
    with pytest.raises(BadInput, match="there are no results of 'nobody'"):
        next(evaluation.results("nobody"))
    for file, read_all in ((UTTERANCES, evaluation.utterances), (SKIPPED, evaluation.skipped)):
        (evaluation.path / file).write_text("[" * 100_000, encoding="utf-8")
        with pytest.raises(BadInput, match="is damaged"):
            list(read_all())


@given(st.text(min_size=1))
def test_every_key_has_a_folder_of_its_own(key: str) -> None:
    assert slug(key) != slug(key + "x") and "/" not in slug(key) and not slug(key).startswith(".")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.floats(0, 1e6), st.none() | st.floats(0.1, 1e6))
def test_result_lines_round_trip_any_text(text: str, offset: float, duration: float | None) -> None:
    utterance = Utterance("u", "a.wav", text, offset, duration, extra={"note": text})
    assert Utterance.from_line(utterance.to_line().encode()) == utterance and utterance.to_line().count("\n") == 1
    generator = random.Random(1)
    row = replace(result("m", utterance, generator, 0.5), text=text)
    assert Result.from_line(row.to_line().encode()).text == text
