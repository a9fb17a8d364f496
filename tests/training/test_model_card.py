from dataclasses import replace

import pytest

from workbench.core.errors import BadInput
from workbench.registry.sources import assets
from workbench.training.loop import TrainOptions
from workbench.training.model_card import (
    MORE_RATES,
    CardFacts,
    Measured,
    continue_card,
    rounds_in,
    rounds_with_more_speakers,
    write_card,
)
from workbench.training.training_run import (
    CONTINUING,
    CONTINUING_ROUNDS,
    MORE_SPEAKERS_ROUNDS,
    DemoOptions,
    Phase,
    TrainingRun,
)

FACTS = CardFacts(
    "paraformer", 1000, ["anna"], ["zoe"], [Phase("all parts", TrainOptions(), 500)], 0, 12.0, "a machine"
)
LATER = CardFacts("paraformer", 1000, ["anna"], ["zoe"], [Phase("going on", TrainOptions(), 70)], 0, 3.0, "a machine")


def test_continued_model_card_has_new_error_rates_and_describes_every_training_round(tmp_path):
    card = tmp_path / "README.md"
    write_card(card, FACTS, [Measured("as recorded", "3 to 7", 300, 0.25)])
    earlier = card.read_text()
    continue_card(card, earlier, LATER, [Measured("as recorded", "3 to 7", 300, 0.05)], ["carla"], CONTINUING)
    text = card.read_text()
    assert "| as recorded | 3 to 7 | 300 | 5.0% |" in text and "25.0%" not in text
    assert text.count("## Data and licence") == text.count("## Figures") == 1
    assert "| all parts | 500 |" in text and "| going on | 70 |" in text
    assert f"Of these strings, {CONTINUING.empty_share:.0%} have no digits" in text
    assert "--continue assets/demo-paraformer --other-speech FOLDER" in text and "(carla)" in text
    continue_card(card, text, LATER, [Measured("as recorded", "3 to 7", 300, 0.04)], [], CONTINUING_ROUNDS[-1].corpus)
    continued = card.read_text()
    assert continued.count("## Continued training") == 2 and "5.0%" not in continued
    assert [rounds_in(each) for each in (earlier, text, continued)] == [0, 1, 2]
    assert 'Of the takes of "six", 60%' in continued.split("## Continued training")[2]
    assert "Made from the checkpoint of the section above by" in continued
    assert continued.count(MORE_RATES) == 1


def test_continued_training_uses_the_next_round_options_and_repeats_the_last(tmp_path):
    runs = [TrainingRun(DemoOptions(), [], tmp_path, print, rounds).continuing for rounds in range(5)]
    assert tuple(runs[:3]) == CONTINUING_ROUNDS and runs[3] == runs[4] == CONTINUING_ROUNDS[-1]


def test_training_rounds_with_more_speakers_are_counted_separately(tmp_path):
    card = tmp_path / "README.md"
    write_card(card, FACTS, [Measured("as recorded", "3 to 7", 300, 0.25)])
    rate = [Measured("as recorded", "3 to 7", 300, 0.05)]
    continue_card(card, card.read_text(), LATER, rate, ["carla"], CONTINUING)
    more = replace(LATER, more_speakers=["alan", "slt"])
    continue_card(card, card.read_text(), more, rate, ["carla"], MORE_SPEAKERS_ROUNDS[0].corpus)
    text = card.read_text()
    assert (rounds_in(text), rounds_with_more_speakers(text)) == (2, 1)
    assert "--other-speech FOLDER --more-speakers FOLDER --out" in text
    assert "More speakers say the digits (alan, slt)" in text and "\n\n\n" not in text
    options = DemoOptions(more_speakers=tmp_path)
    rounds = [TrainingRun(options, [], tmp_path, print, number).continuing for number in range(3)]
    assert rounds == [*MORE_SPEAKERS_ROUNDS, MORE_SPEAKERS_ROUNDS[-1]]


@pytest.mark.parametrize("family", ["sensevoice", "paraformer", "funasr-nano", "fireredasr"])
def test_shipped_model_card_states_once_which_checkpoint_its_error_rates_belong_to(family):
    card = (assets() / f"demo-{family}" / "README.md").read_text(encoding="utf-8")
    assert rounds_in(card) >= 1 and card.count(MORE_RATES) == card.count("those of this checkpoint") == 1


def test_continuing_a_foreign_model_card_raises_an_error(tmp_path):
    with pytest.raises(BadInput, match="the model card of the earlier checkpoint lacks the line"):
        continue_card(tmp_path / "README.md", "# another", LATER, [], [], CONTINUING)
