"""The tiny models are what the tests of the families stand on: real, alive and loadable."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL.Image import Image
from PIL.ImageOps import invert
from transformers import AutoModelForImageTextToText, PreTrainedModel, ProcessorMixin
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from lookright.families import REFUSED
from lookright.processors import load_processor, torchvision_works
from zoo import BARE, NOT_BUILT, NOT_SAVED, WRONG_IN_A_BATCH, ZOO, build, save
from zoo.ask import inputs, pictures
from zoo.text import END_OF_TURN, make_tokenizer

# Some processors of transformers turn tensors into arrays the way NumPy 1 did.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

#: Processors that keep no record of what they put in an image's place.
NO_RECORD = {"idefics2", "pp_chart2table"}


@pytest.fixture(autouse=True)
def one_thread() -> object:
    """Models this small are quickest on one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def last_logits(
    model: PreTrainedModel, processor: ProcessorMixin, questions: list[list[Image]]
) -> torch.Tensor:
    """The logits of each prompt's last token [batch, words]."""
    with torch.no_grad():
        made = model(**inputs(model, processor, questions), use_cache=False, logits_to_keep=1)
    return made.logits[:, -1]


@pytest.mark.parametrize("model_type", ZOO)
def test_a_tiny_model_answers_its_own_processor_alone_and_in_a_batch(model_type: str) -> None:
    model, processor = build(model_type)
    assert type(model).__name__ == MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[model_type]
    three, two = pictures(3), pictures(2, seed=1)
    alone = torch.cat([last_logits(model, processor, [images]) for images in (three, two)])
    assert torch.isfinite(alone).all()
    together = last_logits(model, processor, [three, two])
    same = torch.allclose(together, alone, rtol=0, atol=1e-5)
    assert same == (model_type not in WRONG_IN_A_BATCH)


@pytest.mark.parametrize("model_type", ZOO)
def test_every_picture_of_a_prompt_changes_the_answer(model_type: str) -> None:
    model, processor = build(model_type)
    shown = pictures(3)
    before = last_logits(model, processor, [shown])
    for place, image in enumerate(shown):
        changed = [*shown[:place], invert(image), *shown[place + 1 :]]
        assert (last_logits(model, processor, [changed]) - before).abs().max() > 1e-4


@pytest.mark.parametrize("model_type", ZOO)
def test_a_prompt_holds_the_image_tokens_of_each_of_its_pictures(model_type: str) -> None:
    model, processor = build(model_type)
    made = inputs(model, processor, [pictures(3)], return_text_replacement_offsets=True)
    image_token = model.config.image_token_id
    visual = int((made["input_ids"] == image_token).sum())
    if model_type in NO_RECORD:
        assert not made.get("text_replacement_offsets")
        assert visual == 3 * 4
        return
    counts = [
        processor.tokenizer(entry["replacement"])["input_ids"].count(image_token)
        for entry in made["text_replacement_offsets"][0]
    ]
    assert len(counts) == 3
    assert min(counts) > 0
    assert sum(counts) == visual


@pytest.mark.skipif(torchvision_works(), reason="torchvision processes images a little otherwise")
@pytest.mark.parametrize("model_type", [name for name in ZOO if name not in NOT_SAVED])
def test_a_saved_model_and_processor_load_as_they_were(model_type: str, tmp_path: Path) -> None:
    model, processor = build(model_type)
    save(model_type, tmp_path)
    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path)
    made = inputs(model, processor, [pictures(3)])
    again = inputs(loaded, load_processor(tmp_path), [pictures(3)])
    assert made.keys() == again.keys()
    for name, tensor in made.items():
        assert torch.equal(tensor, again[name]), name
    with torch.no_grad():
        torch.testing.assert_close(model(**made).logits, loaded(**again).logits)


@pytest.mark.parametrize("model_type", BARE)
def test_a_tiny_model_without_a_processor_answers_tensors(model_type: str) -> None:
    model, prompt = BARE[model_type]()
    assert type(model).__name__ == MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[model_type]
    visual = prompt.inputs["input_ids"][0] == model.config.image_token_id
    assert visual.sum() == sum(stop - start for start, stop in prompt.spans)
    assert all(visual[start:stop].all() for start, stop in prompt.spans)
    with torch.no_grad():
        assert torch.isfinite(model(**prompt.inputs, logits_to_keep=1).logits).all()


def test_every_model_type_of_transformers_has_its_place() -> None:
    places = [*ZOO, *BARE, *NOT_BUILT, *REFUSED]
    assert sorted(places) == sorted(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)


def test_every_digit_is_a_token_of_its_own() -> None:
    tokenizer = make_tokenizer()
    assert tokenizer.tokenize("12") == ["1", "2"]
    assert tokenizer.decode(tokenizer("1 to 10: Ärger")["input_ids"]) == "1 to 10: Ärger"
    assert tokenizer.tokenize(END_OF_TURN) == [END_OF_TURN]
