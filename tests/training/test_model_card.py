import pytest

from workbench.core.errors import BadInput
from workbench.training.loop import TrainOptions
from workbench.training.model_card import CardFacts, Measured, continue_card, write_card
from workbench.training.training_run import CONTINUING, Phase

FACTS = CardFacts(
    "paraformer", 1000, ["anna"], ["zoe"], [Phase("listening", TrainOptions(), 500)], 0, 12.0, "a machine"
)
LATER = CardFacts("paraformer", 1000, ["anna"], ["zoe"], [Phase("going on", TrainOptions(), 70)], 0, 3.0, "a machine")


def test_a_card_that_goes_on_has_new_figures_and_both_trainings(tmp_path):
    card = tmp_path / "README.md"
    write_card(card, FACTS, [Measured("as recorded", "3 to 7", 300, 0.25)])
    earlier = card.read_text()
    continue_card(card, earlier, LATER, [Measured("as recorded", "3 to 7", 300, 0.05)], ["carla"])
    text = card.read_text()
    assert "| as recorded | 3 to 7 | 300 | 5.0% |" in text and "25.0%" not in text
    assert text.count("## Data and licence") == text.count("## Figures") == 1
    assert "| listening | 500 |" in text and "| going on | 70 |" in text
    assert f"Of these strings, {CONTINUING.empty_share:.0%} have no digits" in text
    assert "--continue assets/demo-paraformer --other-speech FOLDER" in text and "(carla)" in text
    continue_card(card, text, LATER, [Measured("as recorded", "3 to 7", 300, 0.04)], [])
    again = card.read_text()
    assert again.count("## Training that went on") == 2 and "5.0%" not in again
    assert "Made from the checkpoint of the training that stands above it by" in again


def test_only_a_card_of_a_demo_can_go_on(tmp_path):
    with pytest.raises(BadInput, match="the model card to go on from lacks the line"):
        continue_card(tmp_path / "README.md", "# another", LATER, [], [])
