"""The layouts in which people download single corpora: their rows, their speakers, and what is wrong with some."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.manifest_files import rows, write
from workbench.core.errors import BadInput
from workbench.evaluation.manifests import Bad, read_manifest
from workbench.evaluation.manifests.layouts.stm import spoken
from workbench.evaluation.rows import Utterance

Files = dict[str, str | bytes]
LJSPEECH: Files = {
    "LJ/metadata.csv": '\ufeffLJ001-0001|He paid 2.|He paid two.\r\nwavs/LJ001-0002|say "hi|\r\n'
    "LJ001-0003|a|b|c\r\nLJ9|a|b\r\n",
    "LJ/wavs/LJ001-0001.wav": "",
    "LJ/wavs/LJ001-0002.wav": "",
    "LJ/wavs/LJ001-0003.wav": "",
    "LJ/README": "The LJ Speech Dataset",
}
VCTK: Files = {
    "txt/p225/p225_001.txt": "Please call Stella.\n",
    "txt/p226/p226_001.txt": "Ask her.\n",
    "wav48_silence_trimmed/p225/p225_001_mic1.flac": "",
    "wav48_silence_trimmed/p225/p225_001_mic2.flac": "",
    "wav48_silence_trimmed/p226/p226_001_mic2.flac": "",
    "wav48_silence_trimmed/p315/p315_001_mic1.flac": "",
    "speaker-info.txt": "ID  AGE\np225  23\n",
}
STM = """;; a comment
Al_2009 1 Al_Gore 0.5 2.25 <o,f0,male> i 'd like {NOISE} a(2) <unk> talk
Al_2009 1 inter_segment_gap 2.25 3 <o,,unknown> ignore_time_segment_in_scoring
Al_2009 B Bob 3.00 4 <F0_M> they 're <sil> here (Al_2009-3.00-4.00-F0_M-S29)
Al_2009 1 Al_Gore 5 6 { uh / @ } yes
Al_2009 x Al_Gore 5 6 yes
Al_2010 1 Al_Gore 5 6 yes
Al_2009 1
"""
TEDLIUM: Files = {
    "legacy/test/stm/Al_2009.stm": STM,
    "legacy/test/sph/Al_2009.sph": "",
    "legacy/dev/sph/Al_2009.sph": "",
    "legacy/dev/stm/Al_2009.stm": "Al_2009 1 Al_Gore 1 2 other words",
}
AISHELL_2: Files = {
    "iOS/dev/wav.scp": "ID0001W0001\twav/D0001/ID0001W0001.wav\n",
    "iOS/dev/trans.txt": "ID0001W0001\t厨房 用品\nID0001W0002\t门\n",
    "iOS/dev/wav/D0001/ID0001W0001.wav": "",
}
AISHELL_3: Files = {
    "test/content.txt": "SSB00050001.wav\t广 guang3 州 zhou1\nSSB00050002.wav\t女 nv3 大\nSSB00050003.wav\t大 da4\n",
    "test/wav/SSB0005/SSB00050001.wav": "",
    "test/wav/SSB0005/SSB00050002.wav": "",
    "spk-info.txt": "SSB0005\tB\n",
}
MAGICDATA: Files = {
    "dev/TRANS.txt": "UtteranceID\tSpeakerID\tTranscription\n38_1_2.wav\t38_1\t打开[FIL] TV[SPK]\n38_1_3.wav\t38_1\n",
    "dev/38_1/38_1_2.wav": "",
    "dev/38_1/38_1_3.wav": "",
}
UNREADABLE = "it is not of the form of this list, so its text is unknown"
Found = tuple[Files, list[Utterance], list[tuple[str, str]]]
CORPORA: dict[str, Found] = {
    "ljspeech": (
        LJSPEECH,
        [
            Utterance("LJ/wavs/LJ001-0001", "LJ/wavs/LJ001-0001.wav", "He paid two."),
            Utterance("LJ/wavs/LJ001-0002", "LJ/wavs/LJ001-0002.wav", 'say "hi'),
        ],
        [
            ("LJ/metadata.csv, line 3", UNREADABLE),
            ("LJ/metadata.csv, line 4", "there is no recording 'LJ9', only its text"),
            ("LJ/wavs/LJ001-0003.wav", "there is no transcript beside it; expected LJ001-0003.txt or .lab"),
        ],
    ),
    "vctk": (
        VCTK,
        [
            Utterance(f"{stem}", f"{stem}.flac", text, speaker=speaker)
            for stem, text, speaker in (
                ("wav48_silence_trimmed/p225/p225_001_mic1", "Please call Stella.", "p225"),
                ("wav48_silence_trimmed/p226/p226_001_mic2", "Ask her.", "p226"),
            )
        ],
        [
            (
                "wav48_silence_trimmed/p315/p315_001_mic1.flac",
                "there is no transcript beside it; expected txt/p315/p315_001.txt for it",
            )
        ],
    ),
    "vctk before 0.92": (
        {"VCTK/txt/p225/p225_001.txt": "Please call.\n", "VCTK/wav48/p225/p225_001.wav": ""},
        [Utterance("VCTK/wav48/p225/p225_001", "VCTK/wav48/p225/p225_001.wav", "Please call.", speaker="p225")],
        [],
    ),
    "libritts": (
        {"84/12/84_12_000_01.normalized.txt": "He paid two.", "84/12/84_12_000_01.wav": "", "84/12/x.trans.tsv": "x"},
        [Utterance("84/12/84_12_000_01", "84/12/84_12_000_01.wav", "He paid two.", speaker="84")],
        [],
    ),
    "ted-lium": (
        TEDLIUM,
        [
            Utterance(
                "legacy/dev/sph/Al_2009#1", "legacy/dev/sph/Al_2009.sph", "other words", 1.0, 1.0, 0, speaker="Al_Gore"
            ),
            Utterance(
                "legacy/test/sph/Al_2009#0.5",
                "legacy/test/sph/Al_2009.sph",
                "i'd like a talk",
                0.5,
                1.75,
                0,
                speaker="Al_Gore",
            ),
            Utterance(
                "legacy/test/sph/Al_2009#3",
                "legacy/test/sph/Al_2009.sph",
                "they're here",
                3.0,
                1.0,
                1,
                speaker="Bob",
            ),
        ],
        [
            ("legacy/test/stm/Al_2009.stm, line 3", "it is not to be scored (ignore_time_segment_in_scoring)"),
            (
                "legacy/test/stm/Al_2009.stm, line 5",
                "it has alternatives in braces; expected the words that are said",
            ),
            ("legacy/test/stm/Al_2009.stm, line 6", "its channel is 'x'; expected 1 or 2, or A or B"),
            ("legacy/test/stm/Al_2009.stm, line 7", "there is no recording 'Al_2010', only its text"),
            (
                "legacy/test/stm/Al_2009.stm, line 8",
                "it has too few fields; expected RECORDING CHANNEL SPEAKER START END WORDS",
            ),
        ],
    ),
    "aishell-2": (
        AISHELL_2,
        [Utterance("iOS/dev/wav/D0001/ID0001W0001", "iOS/dev/wav/D0001/ID0001W0001.wav", "厨房 用品", speaker="D0001")],
        [("iOS/dev/trans.txt, line 2", "there is no recording 'ID0001W0002', only its text")],
    ),
    "aishell-3": (
        AISHELL_3,
        [Utterance("test/wav/SSB0005/SSB00050001", "test/wav/SSB0005/SSB00050001.wav", "广州", speaker="SSB0005")],
        [
            ("test/content.txt, line 2", UNREADABLE),
            ("test/content.txt, line 3", "there is no recording 'SSB00050003.wav', only its text"),
            (
                "test/wav/SSB0005/SSB00050002.wav",
                "there is no transcript beside it; expected SSB00050002.txt or .lab",
            ),
        ],
    ),
    "magicdata": (
        MAGICDATA,
        [Utterance("dev/38_1/38_1_2", "dev/38_1/38_1_2.wav", "打开 TV", speaker="38_1")],
        [
            ("dev/TRANS.txt, line 3", UNREADABLE),
            ("dev/38_1/38_1_3.wav", "there is no transcript beside it; expected 38_1_3.txt or .lab"),
        ],
    ),
}


def packed(folder: Path, files: Files, kind: str) -> Path:
    """Returns the files as a folder, or as an archive of a kind."""
    if kind == "folder":
        return write(folder / "corpus", files)
    contents = {name: each if isinstance(each, bytes) else each.encode() for name, each in files.items()}
    path = folder / f"corpus.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in contents.items():
                archive.writestr(name, content)
        return path
    with tarfile.open(path, "w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("kind", ["folder", "zip", "tar.gz"])
@pytest.mark.parametrize("corpus", CORPORA)
def test_a_corpus_is_read_as_it_is_downloaded(tmp_path: Path, corpus: str, kind: str) -> None:
    files, utterances, bad = CORPORA[corpus]
    found = rows(packed(tmp_path, files, kind))
    assert [row for row in found if isinstance(row, Utterance)] == utterances
    assert [(row.where, row.reason) for row in found if isinstance(row, Bad)] == bad


def test_the_list_of_ljspeech_stands_for_its_folder(tmp_path: Path) -> None:
    folder = write(tmp_path, LJSPEECH) / "LJ"
    assert rows(folder / "metadata.csv") == rows(folder)
    assert read_manifest(folder / "metadata.csv").root == str(folder)


def test_a_table_with_bars_and_names_is_read_by_its_names(tmp_path: Path) -> None:
    write(tmp_path, {"metadata.csv": 'audio_file|text|speaker_name\nwavs/a.wav|say "hi, there|ann\n'})
    assert rows(tmp_path) == [Utterance("wavs/a", "wavs/a.wav", 'say "hi, there', speaker="ann")]


def test_a_data_directory_of_aishell_2_has_the_speakers(tmp_path: Path) -> None:
    found = read_manifest(write(tmp_path, AISHELL_2) / "iOS/dev")
    utterance, bad = found.rows()
    assert (found.format, bad) == (
        "kaldi",
        Bad("trans.txt, line 2", "wav.scp has no 'ID0001W0002', so only the text of this utterance is there"),
    )
    assert utterance == Utterance("ID0001W0001", "wav/D0001/ID0001W0001.wav", "厨房 用品", speaker="D0001")


def test_an_stm_file_alone_is_refused_with_the_folder_to_name(tmp_path: Path) -> None:
    write(tmp_path, TEDLIUM)
    with pytest.raises(BadInput, match="name the folder that holds it and its recordings"):
        read_manifest(tmp_path / "legacy/test/stm/Al_2009.stm")


@pytest.mark.parametrize(
    "words, said",
    [
        ("the dogs ' owner", "the dogs ' owner"),
        ("rock 'n roll 's {COUGH}", "rock'n roll's"),
        ("(applause) it (a) b", "(applause) it (a) b"),
        ("one <unk> two(3)", "one two"),
        ("", ""),
    ],
)
def test_marks_of_tedlium_are_no_words(words: str, said: str) -> None:
    assert spoken(words) == said


def test_transcripts_belong_to_recordings_with_names_in_another_normal_form(tmp_path: Path) -> None:
    """macOS decomposes the accents of names, and the programs that wrote the lists did not."""
    decomposed, name = "e\u0301te\u0301", "été"
    write(tmp_path / "beside", {f"{decomposed}.wav": "", f"{name}.txt": "one"})
    write(tmp_path / "listed", {f"x/{decomposed}.wav": "", "transcripts.txt": f"{name} one\n"})
    write(tmp_path / "libri", {f"x/{decomposed}.flac": "", "x/x.trans.txt": f"{name} one\n"})
    for folder, audio in (("beside", ".wav"), ("listed", ".wav"), ("libri", ".flac")):
        [row] = rows(tmp_path / folder)
        assert isinstance(row, Utterance) and row.text == "one" and row.audio.endswith(decomposed + audio)
