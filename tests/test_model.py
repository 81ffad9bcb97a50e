"""The model: evidence asked for in whatever company is the same evidence."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from torch import Tensor

from asking import QUIET, asked, fresh, noise, prompt_of, question
from lookright import attention
from lookright.errors import EvidenceWarning, InputError
from lookright.evidence import Evidence, EvidenceArray
from lookright.instance import Instance, Order, cyclic_orders, random_orders
from lookright.model import Model
from lookright.settings import EvidenceSettings
from zoo import build, save

pytestmark = QUIET

#: Families whose positions, masks or states take padding in different ways.
KINDS = ["llava", "qwen2_5_vl", "qwen3_5", "gemma3", "gemma4", "paligemma", "hunyuan_vl"]


def mixed() -> tuple[list[Instance], list[Order]]:
    """Prompts of different lengths about different numbers of pictures, no two alike."""
    instances = [question(0, 4), question(1, 4), question(2, 4), question(3, 2), question(0, 6)]
    orders = [random_orders(len(i.images), 1, seed=k)[0] for k, i in enumerate(instances)]
    return instances, orders


def alike(found: Sequence[Evidence], expected: Sequence[Evidence]) -> None:
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.key, mine.instance_id) == (theirs.key, theirs.instance_id)
        np.testing.assert_allclose(mine.log_probs, theirs.log_probs, rtol=0, atol=1e-5)
        np.testing.assert_allclose(mine.attention, theirs.attention, rtol=0, atol=1e-5)


def batches_of(model: Model, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches it reads from now on."""
    sizes: list[int] = []
    own = model.backbone.read

    def read(inputs: dict[str, Tensor], *args: Any, **named: Any) -> Any:
        sizes.append(len(inputs["input_ids"]))
        return own(inputs, *args, **named)

    monkeypatch.setattr(model.backbone, "read", read)
    return sizes


# In company and alone


@pytest.mark.parametrize("identifiers", ["numbers", "roman"])
@pytest.mark.parametrize("model_type", KINDS)
def test_a_prompt_in_a_batch_gives_what_it_gives_alone(
    model_type: str, identifiers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = asked(model_type)
    settings = EvidenceSettings(identifiers=identifiers)
    instances, orders = mixed()
    alone = [model.evidence([i], [o], settings)[0] for i, o in zip(instances, orders, strict=True)]
    sizes = batches_of(model, monkeypatch)
    alike(model.evidence(instances, orders, settings), alone)
    assert sizes == ([1] * 5 if model_type == "hunyuan_vl" else [3, 1, 1])


def test_batches_keep_to_the_budget_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fresh("llava")
    tokens = len(prompt_of(model, question(1), (0, 1, 2, 3)).tokens)
    instances, orders = [question(1)] * 7, [(0, 1, 2, 3)] * 7
    sizes = batches_of(model, monkeypatch)
    for budget, expected in ((3 * tokens, [3, 3, 1]), (3 * tokens - 1, [2, 2, 2, 1]), (1, [1] * 7)):
        sizes.clear()
        model.batch_tokens = budget
        model.evidence(instances, orders)
        assert sizes == expected


def test_prompts_whose_answers_are_other_tokens_are_not_asked_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a generation prompt an answer follows the question's own last word."""
    model = fresh("llava")
    model.encoder.processor.chat_template = (
        "{% for part in messages[0].content %}"
        "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}"
    )
    instances = [
        Instance(f"q{k}", (noise(k), noise(k + 9)), question=f"Which {words}")
        for k, words in enumerate(("image? a", "image?", "picture? a", "picture?"))
    ]
    settings = EvidenceSettings(identifiers=("nd", "t"))
    alone = [model.evidence([i], [(0, 1)], settings)[0] for i in instances]
    sizes = batches_of(model, monkeypatch)
    alike(model.evidence(instances, [(0, 1)] * 4, settings), alone)
    assert sizes == [1, 1, 1, 1]


def test_padding_moves_no_position() -> None:
    """The decoder counts from a prompt's own first token."""
    model = asked("llava")
    prompts = [prompt_of(model, question(number), (0, 1, 2, 3)) for number in (0, 1)]
    seen: list[Tensor] = []

    def keep(_: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen.append(named["position_ids"])

    hook = model.backbone.decoder.register_forward_pre_hook(keep, with_kwargs=True)
    model.evidence([question(0), question(1)], [(0, 1, 2, 3)] * 2)
    hook.remove()
    for row, prompt in zip(seen[0], prompts, strict=True):
        assert row[-len(prompt.tokens) :].tolist() == list(range(len(prompt.tokens)))


def test_two_instances_of_one_name_are_two_instances() -> None:
    one, other = question(1), question(2)
    other = Instance("q1", other.images, caption=other.caption)
    order = (0, 1, 2, 3)
    model = asked("llava")
    alone = [model.evidence([i], [order])[0] for i in (one, other)]
    alike(model.evidence([one, other, one], [order] * 3), [*alone, alone[0]])


# What an order is


def test_an_order_shows_what_an_instance_in_that_order_shows() -> None:
    model = asked("qwen2_5_vl")
    instance, order = question(1), (2, 0, 3, 1)
    reordered = Instance(
        "other", tuple(instance.images[k] for k in order), caption=instance.caption
    )
    (found,) = model.evidence([instance], [order], maps=True)
    (expected,) = model.evidence([reordered], [(0, 1, 2, 3)], maps=True)
    np.testing.assert_array_equal(found.log_probs, expected.log_probs)
    np.testing.assert_array_equal(found.attention, expected.attention)
    np.testing.assert_array_equal(found.image_tokens, expected.image_tokens)
    assert found.order == order
    assert found.instance != expected.instance


def test_evidence_is_of_positions_and_remembers_which_image_is_which() -> None:
    model = asked("qwen2_5_vl")
    instance = Instance("x", (noise(1, (32, 32)), noise(2, (48, 48))), caption="a", answer=1)
    first, second = model.evidence([instance] * 2, [(0, 1), (1, 0)])
    assert first.image_tokens.tolist() == [4, 9]
    assert second.image_tokens.tolist() == [9, 4]
    assert (first.target, second.target) == (1, 1)
    assert first.instance == second.instance
    assert first.key != second.key
    array = EvidenceArray.of([first, second]).checked()
    assert array.target_positions[:, 0].tolist() == [1, 0]


def test_evidence_says_what_it_was_made_with() -> None:
    model = asked("llava")
    (found,) = model.evidence([question()], [(0, 1, 2, 3)])
    filled = model.settings()
    assert (filled.model, filled.dtype) == ("llava", "float32")
    assert filled.revision == model.backbone.fingerprint()
    assert found.settings == filled.hash != EvidenceSettings().hash
    half = fresh("llava")
    half.backbone.hf.bfloat16()
    assert half.settings().dtype == "bfloat16"
    assert half.settings().hash != filled.hash


def test_the_revision_is_that_of_the_weights_whatever_they_were_asked_for_by() -> None:
    model = fresh("llava")
    assert model.settings().revision == model.backbone.fingerprint()


def test_a_fingerprint_tells_weights_apart() -> None:
    one, same, other = (fresh("llava").backbone for _ in range(3))
    with torch.no_grad():
        other.hf.lm_head.weight[-100:].mul_(1.001)
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()
    assert one.fingerprint() != fresh("vipllava").backbone.fingerprint()


def test_orders_of_another_number_of_images_or_instances_are_refused() -> None:
    model = asked("llava")
    with pytest.raises(InputError, match="is not an order of 4 images"):
        model.evidence([question()], [(0, 1, 2)])
    with pytest.raises(InputError, match="2 instances need as many orders, not 1"):
        model.evidence([question(), question()], [(0, 1, 2, 3)])


def test_nothing_asked_is_nothing_found() -> None:
    assert asked("llava").evidence([], []) == []
    assert asked("llava").generate([], []) == []


def test_a_list_of_too_few_identifiers_is_refused() -> None:
    settings = EvidenceSettings(identifiers=("a", "b"))
    with pytest.raises(InputError, match="4 images need 4 identifiers"):
        asked("llava").evidence([question()], [(0, 1, 2, 3)], settings)


# What does not fit


def test_a_prompt_longer_than_the_context_is_refused_with_both_lengths() -> None:
    model = fresh("llava")
    tokens = len(prompt_of(model, question(), (0, 1, 2, 3)).tokens)
    model.backbone.text_config.max_position_embeddings = tokens
    assert model.evidence([question()], [(0, 1, 2, 3)])
    model.backbone.text_config.max_position_embeddings = tokens - 1
    with pytest.raises(InputError, match=f"'q0': its prompt has {tokens} tokens.* {tokens - 1};"):
        model.evidence([question()], [(0, 1, 2, 3)])


class Memory:
    """A device with room for so many prompts at once."""

    def __init__(self, model: Model, room: int, error: type[Exception] = torch.OutOfMemoryError):
        self.room, self.tried = room, list[int]()
        self.own = model.backbone.read
        self.error = error
        model.backbone.read = self.read  # type: ignore[method-assign]

    def read(self, inputs: dict[str, Tensor], *args: Any, **named: Any) -> Any:
        self.tried.append(len(inputs["input_ids"]))
        if self.tried[-1] > self.room:
            raise self.error("DefaultCPUAllocator: can't allocate memory: you tried to allocate")
        return self.own(inputs, *args, **named)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_out_of_memory_halves_the_batch_and_says_so_once(error: type[Exception]) -> None:
    model = fresh("llava")
    instances, orders = [question(1)] * 21, [(0, 1, 2, 3)] * 21
    expected = model.evidence(instances[:1], orders[:1]) * 21
    tokens = len(prompt_of(model, question(1), orders[0]).tokens)
    model.batch_tokens = 6 * tokens
    memory = Memory(model, room=3, error=error)
    with pytest.warns(EvidenceWarning) as said:
        found = model.evidence(instances, orders)
    assert [str(warning.message) for warning in said] == [
        "out of memory with 6 prompts at once: from here on 3"
    ]
    alike(found, expected)
    assert memory.tried.count(6) == 1
    assert set(memory.tried[1:]) == {3}
    assert model.batch_tokens == 3 * tokens


def test_one_prompt_that_does_not_fit_is_named() -> None:
    model = fresh("llava")
    Memory(model, room=0)
    with (
        pytest.raises(InputError, match=r"instance 'q1': one prompt of \d+ tokens does not fit"),
        pytest.warns(EvidenceWarning, match="out of memory with 2 prompts at once: from here on 1"),
    ):
        model.evidence([question(1), question(2)], [(0, 1, 2, 3)] * 2)


def test_other_errors_of_the_device_stay_what_they_are() -> None:
    model = fresh("llava")
    Memory(model, room=0, error=KeyError)
    with pytest.raises(KeyError):
        model.evidence([question(1)], [(0, 1, 2, 3)])


def test_numbers_that_are_not_finite_name_the_instance_and_the_format() -> None:
    model = fresh("llava")
    with torch.no_grad():
        model.backbone.hf.lm_head.weight.fill_(torch.nan)
    with pytest.raises(InputError, match=r"'q0'.*not finite \(NaN\) in float32.*--dtype"):
        model.evidence([question()], [(0, 1, 2, 3)])
    broken = fresh("llava")
    with torch.no_grad():
        broken.backbone.decoder.layers[1].self_attn.q_proj.weight.fill_(torch.inf)  # type: ignore
    with pytest.raises(InputError, match="not finite"):
        broken.evidence([question()], [(0, 1, 2, 3)])


# What cannot be asked


def bad_ones() -> list[Instance]:
    return [
        Instance("gone", ("no such file.png", noise(1)), caption="a"),
        question(1),
        Instance("words", (noise(1), noise(2)), caption="<image>"),
        Instance("text", (b"not an image", noise(2)), caption="a"),
        question(2),
    ]


def test_what_cannot_be_asked_is_skipped_where_somebody_counts_it() -> None:
    model = asked("llava")
    orders = [tuple(range(len(i.images))) for i in bad_ones()]
    skipped: dict[str, str] = {}
    found = [
        piece
        for batch in model.evidence_iter(
            bad_ones(), orders, skip=lambda i, error: skipped.update({i.id: str(error)})
        )
        for piece in batch
    ]
    assert [piece.instance_id for piece in found] == ["q1", "q2"]
    assert list(skipped) == ["gone", "words", "text"]
    assert "no such file.png" in skipped["gone"]
    alike(found, model.evidence([question(1), question(2)], [(0, 1, 2, 3)] * 2))


def test_what_cannot_be_asked_is_an_error_where_nobody_counts_it() -> None:
    orders = [tuple(range(len(i.images))) for i in bad_ones()]
    with pytest.raises(InputError, match=r"image 0 of instance 'gone'"):
        asked("llava").evidence(bad_ones(), orders)


def test_batches_come_while_later_ones_are_still_to_be_made() -> None:
    model = fresh("llava", batch_tokens=1)
    instances = [question(1), question(2), Instance("gone", ("x", "y"), caption="a"), question(3)]
    orders: list[Order] = [(0, 1, 2, 3), (0, 1, 2, 3), (0, 1), (0, 1, 2, 3)]
    coming = model.evidence_iter(instances, orders)
    assert [next(coming)[0].instance_id for _ in range(2)] == ["q1", "q2"]
    with pytest.raises(InputError, match="'gone'"):
        next(coming)


# The self-check at first use


def test_a_model_that_fails_its_self_check_fails_it_at_every_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = attention.last_row
    monkeypatch.setattr(attention, "last_row", lambda *args, **bends: 2 * own(*args, **bends))
    model = fresh("llava", self_check=True)
    for _ in range(2):
        with pytest.raises(InputError, match="the self-check failed"):
            model.evidence([question()], [(0, 1, 2, 3)])


def test_a_model_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fresh("llava", self_check=True)
    sizes = batches_of(model, monkeypatch)
    model.evidence([question()], [(0, 1, 2, 3)])
    model.evidence([question()], [(0, 1, 2, 3)])
    assert sizes == [2, 1, 1]


# Generation


@pytest.mark.parametrize("model_type", KINDS)
def test_answers_generated_in_a_batch_are_those_generated_alone(model_type: str) -> None:
    model = asked(model_type)
    instances, orders = mixed()
    together = model.generate(instances, orders, max_new_tokens=6)
    alone = [
        model.generate([i], [o], max_new_tokens=6)[0]
        for i, o in zip(instances, orders, strict=True)
    ]
    assert together == alone
    assert [answer.instance_id for answer in together] == [i.id for i in instances]
    assert len({answer.text for answer in together}) > 1 or model_type == "paligemma"


@pytest.mark.parametrize("model_type", KINDS)
def test_a_greedy_answer_held_to_the_candidates_is_the_likeliest(model_type: str) -> None:
    model = asked(model_type)
    tokenizer = model.encoder.tokenizer
    candidates = [tokenizer.convert_tokens_to_ids(str(k)) for k in range(1, 5)]
    others = [token for token in tokenizer.get_vocab().values() if token not in candidates]
    instances, orders = [question(k) for k in range(6)], random_orders(4, 6, seed=0)
    held = {"max_new_tokens": 1, "suppress_tokens": others}
    written = model.generate(instances, orders, **held)
    found = model.evidence(instances, orders)
    likeliest = [str(1 + int(evidence.log_probs.argmax())) for evidence in found]
    assert [answer.text for answer in written] == likeliest


def test_options_of_generation_pass_through() -> None:
    model = asked("llava")
    torch.manual_seed(0)
    sampled = {
        model.generate([question(1)], [(0, 1, 2, 3)], do_sample=True, temperature=5.0)[0].text
        for _ in range(4)
    }
    assert len(sampled) > 1


# From a folder


def test_a_loaded_model_gives_what_the_one_in_memory_gives(tmp_path: Path) -> None:
    save("qwen2_vl", tmp_path)
    loaded = Model.load(str(tmp_path))
    instances, orders = mixed()
    found = loaded.evidence(instances, orders)
    wrapped = Model.wrap(*build("qwen2_vl"), name=tmp_path.name)
    alike(found, wrapped.evidence(instances, orders))
    assert loaded.settings().revision == wrapped.settings().revision
    assert loaded.backbone.device.type == "cpu" or loaded.backbone.dtype_name == "float32"


def test_a_format_can_be_asked_for(tmp_path: Path) -> None:
    save("llava", tmp_path)
    assert Model.load(str(tmp_path), device="cpu").settings().dtype == "float32"
    for dtype in ("bfloat16", torch.bfloat16):
        loaded = Model.load(str(tmp_path), device="cpu", dtype=dtype)
        assert loaded.settings().dtype == "bfloat16"
        (found,) = loaded.evidence([question()], [(0, 1, 2, 3)])
        assert found.attention.dtype == found.log_probs.dtype == np.float32


def test_eager_attention_can_be_asked_for(tmp_path: Path) -> None:
    save("llava", tmp_path)
    loaded = Model.load(str(tmp_path), base_attention="eager")
    assert loaded.backbone.attention == "eager"
    expected = asked("llava").evidence([question()], [(0, 1, 2, 3)])[0]
    (found,) = loaded.evidence([question()], [(0, 1, 2, 3)])
    np.testing.assert_allclose(found.attention, expected.attention, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.log_probs, expected.log_probs, rtol=0, atol=1e-5)


def refused(folder: Path, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        Model.load(str(folder), **options)
    message = str(error.value)
    assert "\n" not in message.strip()
    assert len(message) < 600
    return message


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    assert "nowhere" in refused(tmp_path / "nowhere")


def test_an_empty_folder_is_a_sentence(tmp_path: Path) -> None:
    assert "config.json" in refused(tmp_path)


def test_a_config_that_is_no_json_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    assert "config.json" in refused(tmp_path)


def test_weights_that_are_not_safetensors_are_refused(tmp_path: Path) -> None:
    hf, processor = build("llava")
    hf.config.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    torch.save(hf.state_dict(), tmp_path / "pytorch_model.bin")
    assert "safetensors" in refused(tmp_path)


def test_weights_without_a_processor_are_refused(tmp_path: Path) -> None:
    build("llava")[0].save_pretrained(tmp_path)
    refused(tmp_path)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (tf.MllamaConfig, "mllama models give no evidence: .*cross-attention"),
        (tf.Blip2Config, "blip-2 models give no evidence: .*query transformer"),
        (tf.Florence2Config, "florence2 models give no evidence: .*encoder-decoder"),
        (tf.Pix2StructConfig, "pix2struct models give no evidence: .*encoder-decoder"),
    ],
)
def test_families_that_give_no_evidence_are_refused_by_name_before_they_are_loaded(
    config: type[Any], reason: str, tmp_path: Path
) -> None:
    config().save_pretrained(tmp_path)
    with pytest.raises(InputError, match=reason):
        Model.load(str(tmp_path))


@pytest.mark.parametrize("config", [tf.LlamaConfig, tf.CLIPConfig, tf.T5Config])
def test_models_that_do_not_read_images_and_write_text_are_refused(
    config: type[Any], tmp_path: Path
) -> None:
    config().save_pretrained(tmp_path)
    assert config.model_type in refused(tmp_path)


def test_a_wrapped_encoder_decoder_is_refused() -> None:
    hf, processor = build("llava")
    hf.config.is_encoder_decoder = True
    with pytest.raises(InputError, match="encoder-decoder"):
        Model.wrap(hf, processor)


def test_a_decoder_without_attention_layers_is_refused() -> None:
    hf, processor = build("llava")
    for layer in hf.get_decoder().layers:
        layer.self_attn.layer_idx = None
    with pytest.raises(InputError, match="no attention layer"):
        Model.wrap(hf, processor)


@pytest.mark.parametrize(
    "options", [{"device": "no such thing"}, {"dtype": "float99"}, {"base_attention": "magic"}]
)
def test_unknown_devices_formats_and_attentions_are_sentences(
    options: dict[str, str], tmp_path: Path
) -> None:
    save("llava", tmp_path)
    assert next(iter(options.values())) in refused(tmp_path, **options)


# Threads


def test_models_in_several_threads_do_not_disturb_each_other() -> None:
    """Two of their own, and one that two threads share."""
    instances = [question(1), question(2)] * 3
    orders = [*cyclic_orders(4), (3, 1, 2, 0), (0, 2, 1, 3)]
    own, shared = fresh("llava", vision_cache=0), fresh("qwen2_vl", vision_cache=0)
    expected = {model: model.evidence(instances, orders) for model in (own, shared)}
    found: list[tuple[Model, list[Evidence]]] = []

    def ask(model: Model) -> None:
        for _ in range(2):
            found.append((model, model.evidence(instances, orders)))

    threads = [threading.Thread(target=ask, args=[model]) for model in (own, shared, shared)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    for model, evidence in found:
        alike(evidence, expected[model])


@pytest.mark.parametrize("use", ["evidence", "generate"])
def test_nothing_is_put_in_a_model_s_place_before_its_turn(use: str) -> None:
    model = fresh("llava")
    model.evidence([question(1)], [(0, 1, 2, 3)])  # its images are encoded
    waiting = threading.Thread(
        target=getattr(model, use), args=([question(1)], [(0, 1, 2, 3)]), daemon=True
    )
    with attention.ONE_PASS:
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        assert "get_image_features" not in model.backbone.base.__dict__
    waiting.join()


def test_generation_in_one_thread_leaves_evidence_in_another_alone() -> None:
    model = fresh("llava", vision_cache=0)
    order = (0, 1, 2, 3)
    (expected,) = model.evidence([question(1)], [order])
    written = model.generate([question(2)], [order], max_new_tokens=4)
    wrong: list[Any] = []

    def write() -> None:
        for _ in range(5):
            if model.generate([question(2)], [order], max_new_tokens=4) != written:
                wrong.append("generated")

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        alike(model.evidence([question(1)], [order]), [expected])
    writer.join()
    assert wrong == []
