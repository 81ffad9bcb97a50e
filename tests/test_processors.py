"""Processors with and without torchvision: the same pictures in, or a sentence why not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers as tf

from lookright import processors
from lookright.errors import InputError
from lookright.processors import compose_processor, load_processor, processor_class
from zoo import build, save
from zoo.ask import inputs, pictures
from zoo.text import make_tokenizer

# Some processors of transformers turn tensors into arrays the way NumPy 1 did.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

#: Families whose processor has a video part, and what stands for an image in their prompts.
WITH_VIDEO = {
    "glm46v": "<|image|>",
    "internvl": "<IMG_CONTEXT>",
    "llava_onevision": "<image>",
    "qwen2_5_vl": "<|image_pad|>",
    "qwen3_vl": "<|image_pad|>",
    "smolvlm": "<image>",
}
#: Families without an image processor of PIL's: the classes of their two processors.
NO_PIL = {
    "cohere2_vision": ("Cohere2VisionProcessor", "Cohere2VisionImageProcessor"),
    "lfm2_vl": ("Lfm2VlProcessor", "Lfm2VlImageProcessor"),
    "perception_lm": ("PerceptionLMProcessor", "PerceptionLMImageProcessor"),
}
without_torchvision = pytest.mark.skipif(
    processors.torchvision_works(), reason="torchvision works here"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved model with a video part in its processor."""
    save("qwen2_5_vl", tmp_path)
    return tmp_path


@pytest.mark.parametrize("model_type", WITH_VIDEO)
def test_a_composed_processor_gives_the_image_processors_own_pixels(model_type: str) -> None:
    _, processor = build(model_type)
    marker, images = WITH_VIDEO[model_type], [pictures(3)]
    assert type(processor.image_processor).__name__.endswith("Pil")
    made = processor(
        text=[f"{marker} and {marker} or {marker}?"], images=images, return_tensors="pt"
    )
    options = {"crop_to_patches": True} if model_type == "internvl" else {}
    alone = processor.image_processor(images, return_tensors="pt", **options)
    assert torch.equal(made["pixel_values"], alone["pixel_values"])


def test_a_composed_processor_is_of_its_class_and_checks_its_other_parts() -> None:
    _, processor = build("qwen2_5_vl")
    assert isinstance(processor, tf.Qwen2_5_VLProcessor)
    assert type(processor).__name__ == "Qwen2_5_VLProcessor"
    with pytest.raises(TypeError, match="image_processor"):
        compose_processor(tf.Qwen2_5_VLProcessor, processor.tokenizer, processor.tokenizer)


def test_a_composed_processor_refuses_a_video() -> None:
    _, processor = build("qwen2_5_vl")
    with pytest.raises(InputError, match="without its video part"):
        processor(text=["<|video_pad|>"], videos=[torch.zeros(4, 3, 32, 32)])


def test_a_class_without_a_video_part_is_composed_as_it_is() -> None:
    _, processor = build("llava")
    made = compose_processor(
        tf.LlavaProcessor, processor.image_processor, processor.tokenizer, patch_size=8
    )
    assert type(made) is tf.LlavaProcessor
    assert made.patch_size == 8


@without_torchvision
def test_a_saved_processor_is_loaded_without_its_video_part(folder: Path) -> None:
    model, processor = build("qwen2_5_vl")
    loaded = load_processor(folder)
    with pytest.raises(InputError, match="without its video part"):
        loaded.video_processor(None)
    theirs, ours = (inputs(model, made, [pictures(3)]) for made in (processor, loaded))
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
    assert loaded.chat_template == processor.chat_template


@without_torchvision
def test_the_model_type_names_the_class_where_no_file_does(folder: Path) -> None:
    for name in ("processor_config.json", "tokenizer_config.json"):
        settings = json.loads((folder / name).read_text())
        settings.pop("processor_class")
        (folder / name).write_text(json.dumps(settings))
    assert isinstance(load_processor(folder), tf.Qwen2_5_VLProcessor)


@pytest.mark.parametrize("works", [True, False])
def test_a_processor_without_a_video_part_is_transformers_own(
    works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "torchvision_works", lambda: works)
    save("llava", tmp_path)
    assert type(load_processor(tmp_path)) is tf.LlavaProcessor


@without_torchvision
def test_a_class_that_names_torchvision_is_imported_without_it() -> None:
    found = processor_class("PixtralProcessor")
    assert found is not None
    assert issubclass(found, tf.ProcessorMixin)
    assert "transformers.models.pixtral.image_processing_pixtral" not in sys.modules


def test_no_class_is_found_under_a_name_that_transformers_lacks() -> None:
    assert processor_class("NoSuchProcessor") is None


@without_torchvision
@pytest.mark.parametrize("model_type", NO_PIL)
def test_where_pil_has_no_processor_the_refusal_says_what_to_install(
    model_type: str, tmp_path: Path
) -> None:
    whole, images = NO_PIL[model_type]
    names = {"image_token": "<image>", "video_token": "<video>"}
    make_tokenizer(names=names).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"processor_class": whole, "image_processor_type": images})
    )
    with pytest.raises(InputError, match=r"install the torchvision made for torch \d"):
        load_processor(tmp_path)


@without_torchvision
def test_a_part_that_cannot_be_loaded_is_named(folder: Path) -> None:
    settings = json.loads((folder / "processor_config.json").read_text())
    settings["processor_class"] = "InstructBlipVideoProcessor"
    (folder / "processor_config.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match="image_processor"):
        load_processor(folder)


def test_a_tokenizer_alone_is_refused(tmp_path: Path) -> None:
    make_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(InputError, match="no processor for text and images together"):
        load_processor(tmp_path)


def test_an_image_processor_alone_is_refused(tmp_path: Path) -> None:
    tf.CLIPImageProcessorPil().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "clip_vision_model"}')
    with pytest.raises(InputError, match="no processor for text and images together"):
        load_processor(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("processor_config.json", "{"),
        ("processor_config.json", "[]"),
        ("processor_config.json", "\x00"),
        ("tokenizer.json", "{}"),
    ],
)
def test_damaged_files_are_refused_in_a_sentence(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)
    with pytest.raises(InputError, match=r"its processor cannot be loaded \(\w+\): "):
        load_processor(folder)


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder here"):
        load_processor(tmp_path / "gone")


def test_a_broken_torchvision_is_hidden_even_from_a_transformers_that_met_it(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    broken = tmp_path_factory.mktemp("site") / "torchvision"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise RuntimeError('operator does not exist')\n")
    script = (
        "import transformers\n"
        "assert transformers.utils.is_torchvision_available()\n"
        "from lookright.processors import load_processor\n"
        f"print(type(load_processor({str(folder)!r}).image_processor).__name__)\n"
        "assert not transformers.utils.is_torchvision_available()\n"
    )
    path = os.pathsep.join([str(broken.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "Qwen2VLImageProcessorPil"
