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
from workbench.evaluation.store import RESULTS, RUN, Evaluation, read, shards, slug
from workbench.evaluation.writer import Writer, claimed, merged


def test_written_results_are_read_back(tmp_path: Path) -> None:
    found = make_evaluation(tmp_path / "out", 25, shard_rows=10)
    assert list(found.utterances()) == utterances(25)
    assert found.models == MODELS and found.done() == dict.fromkeys(MODELS, 25)
    assert [each.id for each in found.results(MODELS[1])] == [each.id for each in found.utterances()]
    assert [path.name for path in shards(found.path, MODELS[0])] == ["00000.jsonl", "00001.jsonl", "00002.jsonl"]
    [skipped] = found.skipped()
    assert skipped["where"] == "list.csv, line 7" and found.run.manifest.skipped == 1
    for each in found.results():
        assert Result.from_line(each.to_line()) == each
        if each.rates:
            assert each.rates.words.reference_units == each.scores["words"]["length"]


def test_measurements_are_the_last_key_of_a_result_line(tmp_path: Path) -> None:
    found = make_evaluation(tmp_path / "out", 5)
    [shard] = shards(found.path, MODELS[0])
    for line in shard.read_text(encoding="utf-8").splitlines():
        assert list(json.loads(line))[-1] == MEASURED


def rows(found: Evaluation) -> dict[str, bytes]:
    return {str(path.relative_to(found.path)): path.read_bytes() for path in sorted(found.path.glob(f"{RESULTS}/*/*"))}


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.floats(0, 1), order=st.randoms(use_true_random=False))
def test_file_cut_at_any_byte_loses_at_most_one_row(
    tmp_path_factory: pytest.TempPathFactory, cut: float, order: random.Random
) -> None:
    whole = make_evaluation(tmp_path_factory.mktemp("whole") / "out", 12, MODELS[:1], shard_rows=5)
    wanted, of = rows(whole), {each.id: each for each in whole.results()}
    with claimed(whole.path):
        for shard in shards(whole.path, MODELS[0]):
            shard.unlink()
        writer = Writer(whole.path, whole.run, MODELS[:1])
        ids = [each.id for each in whole.utterances()]
        for position in order.sample(range(12), 9):
            writer.add(of[ids[position]])
        writer.abandon()  # as a kill does
        killed = order.choice(shards(whole.path, MODELS[0]))
        content = killed.read_bytes()
        left = content[: round(cut * len(content))]
        killed.write_bytes(left)
        there = sum(1 for _ in whole.results())
        writer = Writer(whole.path, whole.run, MODELS[:1])
        todo = writer.todo(MODELS[0])
        assert len(todo) == 12 - there
        assert writer.torn <= 1
        order.shuffle(todo)
        for position in todo:
            assert writer.add(of[ids[position]])
            assert not writer.add(of[ids[position]]), "each exactly once"
        writer.close()
    assert rows(whole) == wanted


def test_damaged_duplicate_and_foreign_rows_are_removed(tmp_path: Path) -> None:
    found = make_evaluation(tmp_path / "out", 8, MODELS[:1])
    [shard] = shards(found.path, MODELS[0])
    wanted, lines = shard.read_bytes(), shard.read_bytes().splitlines(keepends=True)
    other = lines[1].replace(MODELS[0].encode(), b"demo/other|gguf|f32")
    damaged = [lines[0], b"\0\0\0\0\n", lines[2], lines[0], other, lines[3][:40] + b"\n", b"7\n", *lines[4:]]
    shard.write_bytes(b"".join(damaged))
    assert len(list(found.results())) == 7, "the reader passes over torn rows, and those that stand there twice"
    with claimed(found.path):
        writer = Writer(found.path, found.run, MODELS[:1])
        assert (writer.todo(MODELS[0]), writer.todo(MODELS[0], 3), writer.torn) == ([1, 3], [1], 5)
        for position in (3, 1):
            writer.add(Result.from_line(lines[position]))
        writer.close()
    assert shard.read_bytes() == wanted


def test_full_disk_raises_an_error_and_leaves_complete_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    found = make_evaluation(tmp_path / "out", 6, MODELS[:1])
    kept = list(found.results())
    [shard] = shards(found.path, MODELS[0])
    wanted = shard.read_bytes()
    shard.unlink()
    write, room = os.write, len(wanted) // 2

    def until_full(file: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(28, "No space left on device")
        written = write(file, data[:room])
        room -= written
        return written

    with claimed(found.path):
        writer = Writer(found.path, found.run, MODELS[:1])
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", until_full)
            with pytest.raises(Unavailable, match="the disk is full"):
                list(map(writer.add, kept))
        writer.abandon()
        assert shard.read_bytes().endswith(b"\n") and 1 <= len(list(found.results())) < 6
        writer = Writer(found.path, found.run, MODELS[:1])
        for each in kept:
            writer.add(each)
        writer.close()
    assert shard.read_bytes() == wanted


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
    found = make_evaluation(tmp_path / "out", 3)
    run, first = found.run, found.run.models[0]
    assert merged(found.path, run) == run
    assert merged(tmp_path / "none", run) == run
    more = merged(found.path, replace(run, models=(model("demo/paraformer|pytorch"),)))
    assert [each.key for each in more.models] == [*MODELS, "demo/paraformer|pytorch"], "others may be added"
    moved = replace(run, manifest=replace(run.manifest, path="/other/list.csv", root="/other"))
    assert merged(found.path, moved).manifest.root == "/other", "it goes on on another machine"
    changes = {
        "is not the corpus that": {"manifest": replace(run.manifest, digest="0")},
        "the normaliser basic .version 1., and none": {"normaliser": {"name": "none", "version": "1"}},
        "the checkpoint of demo/sensevoice.pytorch has changed": {"models": (replace(first, checkpoint="0"),)},
        "ran in .* with language unset, and now it is 'en'": {"models": (replace(first, options={"language": "en"}),)},
        "with threads unset, and now it is 2": {"models": (replace(first, settings={"threads": 2}),)},
    }
    for sentence, change in changes.items():
        with pytest.raises(BadInput, match=sentence):
            merged(found.path, replace(run, **change))


def test_directory_without_a_valid_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"holds no run\.json; expected a directory"):
        read(tmp_path)
    for text, sentence in (("{", "cannot be read"), ('{"format": 9}', "format 9"), ('{"format": 1}', "is not whole")):
        (tmp_path / RUN).write_text(text, encoding="utf-8")
        with pytest.raises(BadInput, match=sentence):
            read(tmp_path)
    found = make_evaluation(tmp_path / "out", 3)
    with pytest.raises(BadInput, match="there are no results of 'nobody'"):
        next(found.results("nobody"))


@given(st.text(min_size=1))
def test_every_key_has_a_folder_of_its_own(key: str) -> None:
    assert slug(key) != slug(key + "x") and "/" not in slug(key) and not slug(key).startswith(".")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.floats(0, 1e6), st.none() | st.floats(0.1, 1e6))
def test_result_lines_round_trip_any_text(text: str, offset: float, duration: float | None) -> None:
    made = Utterance("u", "a.wav", text, offset, duration, extra={"note": text})
    assert Utterance.from_line(made.to_line().encode()) == made and made.to_line().count("\n") == 1
    drawn = random.Random(1)
    made_of = replace(result("m", made, drawn, 0.5), text=text)
    assert Result.from_line(made_of.to_line().encode()).text == text
