"""Vision features: each image goes through the tower once, and comes out as from the stock call."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from asking import (
    QUIET,
    SIZES,
    SLOW,
    WHOLE,
    asked,
    fresh,
    noise,
    prompt_of,
    question,
    stock_inputs,
)
from lookright.instance import Instance, cyclic_orders
from lookright.model import Model
from lookright.settings import EvidenceSettings
from lookright.vision import FeatureCache, Features, encode, join, served, split
from zoo import ZOO

pytestmark = QUIET

CPU = torch.device("cpu")


def features(size: int) -> Features:
    """Of that many bytes."""
    return Features(None, {"pooler_output": torch.zeros(size, dtype=torch.uint8)})


# What is kept


def test_the_least_recently_used_features_are_forgotten_beyond_the_limit() -> None:
    cache = FeatureCache(100)
    for name in "abc":
        cache.put(name, features(30))
    assert cache.get("a") is not None
    cache.put("d", features(30))
    assert [cache.get(name) is not None for name in "abcd"] == [True, False, True, True]
    cache.put("e", features(70))
    assert [cache.get(name) is not None for name in "acde"] == [False, False, True, True]


def test_features_beyond_the_whole_limit_are_not_kept() -> None:
    cache = FeatureCache(10)
    cache.put("small", features(10))
    cache.put("large", features(11))
    assert cache.get("small") is cache.get("large") is None
    cache.put("small", features(10))
    assert cache.get("small") is not None


def test_features_put_twice_take_their_room_once() -> None:
    cache = FeatureCache(100)
    for _ in range(5):
        cache.put("a", features(40))
    cache.put("b", features(60))
    assert cache.get("a") is not None
    assert cache.get("b") is not None


def test_a_cache_that_was_cleared_has_all_its_room_again() -> None:
    cache = FeatureCache(100)
    cache.put("a", features(90))
    cache.clear()
    assert cache.get("a") is None
    cache.put("b", features(90))
    cache.put("c", features(10))
    assert cache.get("b") is not None


# Apart and together again


@dataclass
class Output(ModelOutput):
    """The fields that towers of transformers return, and some that they might."""

    pooler_output: Any = None
    last_hidden_state: Any = None
    hidden_states: Any = None
    visual_indicator_features: Any = None
    by_list: Any = None
    by_rows: Any = None
    numbered: Any = None


def rows(*values: float, width: int = 2) -> Tensor:
    return torch.tensor([[float(value)] * width for value in values])


def values(output: Any) -> Any:
    """The first number of every row, in the same lists."""
    if isinstance(output, Tensor):
        return output.reshape(-1, output.shape[-1])[:, 0].tolist()
    if isinstance(output, (list, tuple)):
        return [values(item) for item in output]
    return output


@pytest.mark.parametrize(
    ("together", "shares"),
    [
        (rows(1, 2, 3, 4), [[1, 2], [3, 4]]),  # one row after the other
        (torch.stack([rows(1, 2), rows(3, 4)]), [[1, 2], [3, 4]]),  # [images, tokens, width]
        ([rows(1, 2), rows(3, 4)], [[[1, 2]], [[3, 4]]]),  # a list of images
        ((rows(1), rows(2), rows(3), rows(4)), [[[1, 2]], [[3, 4]]]),  # a list of tiles
    ],
)
def test_features_of_two_images_come_apart_and_join_in_any_order(
    together: Any, shares: list[Any]
) -> None:
    one, two = split(Output(pooler_output=together), 2)
    assert values(join([one]).pooler_output) == shares[0]
    assert values(join([two]).pooler_output) == shares[1]
    both = values(join([two, one, two]).pooler_output)
    flat = torch.tensor(both).flatten().tolist()
    assert flat == [3, 4, 1, 2, 3, 4]


def test_a_bare_tensor_stays_one() -> None:
    one, two = split(rows(1, 2, 3, 4), 2)
    joined = join([two, one])
    assert isinstance(joined, Tensor)
    assert values(joined) == [3, 4, 1, 2]


def test_what_enters_at_several_layers_is_shared_layer_by_layer() -> None:
    """As lists of images or as rows, with the number of the layer or without."""
    output = Output(
        pooler_output=(rows(1), rows(2)),
        by_list=[(rows(10), rows(20)), (rows(11), rows(21))],
        by_rows=[rows(10, 20), rows(11, 21)],
        numbered=[(5, [rows(10), rows(20)]), (9, [rows(11), rows(21)])],
    )
    one, two = split(output, 2)
    joined = join([two, one])
    assert values(joined.pooler_output) == [[2], [1]]
    assert values(joined.by_list) == [[[20], [10]], [[21], [11]]]
    assert values(joined.by_rows) == [[20, 10], [21, 11]]
    assert values(joined.numbered) == [[5, [[20], [10]]], [9, [[21], [11]]]]


def test_what_is_the_same_for_all_images_stays_whole() -> None:
    output = Output(pooler_output=rows(1, 2), visual_indicator_features=rows(7, 8, 9))
    one, two = split(output, 2)
    assert values(join([two, one]).visual_indicator_features) == [7, 8, 9]


def test_states_that_the_decoder_never_sees_are_not_kept() -> None:
    states = {"last_hidden_state": rows(5, 6), "hidden_states": (rows(7, 8),)}
    (only, _) = split(Output(pooler_output=rows(1, 2), **states), 2)
    assert set(only.fields) == {"pooler_output"}
    assert only.bytes == 2 * 4  # numbers, bytes each
    (last, _) = split(Output(last_hidden_state=rows(5, 6)), 2)
    assert values(join([last]).last_hidden_state) == [5], "unless there is nothing else"


def test_features_hold_no_view_of_their_neighbours() -> None:
    """Or the cache would keep more than it counts."""
    output = Output(pooler_output=torch.zeros(100, 2).split(50), by_rows=[torch.zeros(100, 2)])
    for features_of_one in split(output, 2):
        joined = join([features_of_one])
        held = [joined.pooler_output[0], joined.by_rows[0]]
        assert all(t.untyped_storage().nbytes() == t.numel() * 4 for t in held)


def test_features_of_equal_rows_that_cannot_be_shared_out_are_an_error() -> None:
    with pytest.raises(ValueError, match="5 rows of features for 2 images"):
        split(rows(1, 2, 3, 4, 5), 2)


def test_images_whose_features_cannot_be_shared_out_are_encoded_one_by_one() -> None:
    class Uneven(Tower):
        """Adds a row to every call, whatever it is asked for."""

        def get_image_features(self, *args: Any, **named: Any) -> Output:
            made = super().get_image_features(*args, **named).pooler_output
            return Output(pooler_output=torch.cat([*made, rows(0)]))

    tower = Uneven()
    found = encode(tower, [patches(1, 2, 3), patches(2, 2, 3)], CPU)
    assert tower.calls == [2, 1, 1]
    assert [values(join([f]).pooler_output) for f in found] == [[2] * 6 + [0], [4] * 6 + [0]]


class Tower(nn.Module):
    """Gives back what it was asked for, and remembers each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def get_image_features(
        self, pixel_values: Tensor, grid: Tensor, return_dict: bool = True
    ) -> Output:
        self.calls.append(len(grid))
        sizes = [int(g.prod()) for g in grid]
        rows_of = pixel_values.split(sizes)
        return Output(tuple(r * g[0] for r, g in zip(rows_of, grid, strict=True)))


def patches(number: float, *grid: int) -> dict[str, Tensor]:
    return {
        "pixel_values": torch.full((grid[0] * grid[1], 2), float(number)),
        "grid": torch.tensor([grid]),
    }


def test_images_of_equal_shape_and_grid_go_through_the_tower_together() -> None:
    tower = Tower()
    found = encode(tower, [patches(1, 2, 3), patches(2, 2, 2), patches(3, 2, 3)], CPU)
    assert sorted(tower.calls) == [1, 2]
    assert [values(join([f]).pooler_output)[0][0] for f in found] == [2, 4, 6]


def test_images_of_equal_shape_but_other_grids_are_not_merged() -> None:
    tower = Tower()
    found = encode(tower, [patches(1, 2, 3), patches(1, 3, 2), patches(1, 1, 6)], CPU)
    assert tower.calls == [1, 1, 1]
    assert [values(join([f]).pooler_output)[0][0] for f in found] == [2, 3, 1]


def test_images_of_equal_shape_but_other_sizes_of_many_tiles_are_not_merged() -> None:
    def tiled(*sizes: tuple[int, int]) -> dict[str, Tensor]:
        cut = torch.tensor(sizes).repeat(8, 1)  # too many numbers to be one grid
        return {"pixel_values": torch.ones(int(cut.prod(-1).sum()), 2), "grid": cut}

    tower = Tower()
    encode(tower, [tiled((2, 3)), tiled((3, 2)), tiled((2, 3))], CPU)
    assert sorted(tower.calls) == [8, 16]


def test_served_features_are_served_while_inside_alone() -> None:
    tower: Any = Tower()
    own = inspect.signature(tower.get_image_features)
    with served(tower, "made before"):
        assert tower.get_image_features(1, 2) == "made before"
        with served(tower, "made later"):
            assert tower.get_image_features() == "made later"
            assert inspect.signature(tower.get_image_features) == own
        assert tower.get_image_features() == "made before"

    def fail() -> None:
        with served(tower, "made before"):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert "get_image_features" not in tower.__dict__
    assert tower.calls == []


# In real models


@contextmanager
def tower_watched(model: Model) -> Iterator[list[int]]:
    """How many images each call of the model's own `get_image_features` was for."""
    base = model.backbone.base
    own = base.get_image_features
    calls: list[int] = []

    @wraps(own)
    def counting(*args: Any, **named: Any) -> Any:
        counts = [len(v) for k, v in named.items() if k in ("image_grid_thw", "image_sizes")]
        calls.append(counts[0] if counts else len(named["pixel_values"]))
        return own(*args, **named)

    base.get_image_features = counting  # type: ignore[assignment]
    try:
        yield calls
    finally:
        del base.get_image_features


@pytest.mark.parametrize("model_type", ["llava", "qwen2_vl", "mistral3", "llava_onevision"])
def test_cyclic_orders_send_each_image_through_the_tower_once(model_type: str) -> None:
    model = fresh(model_type, batch_tokens=600)
    instance = question(n=6)
    orders = cyclic_orders(6)
    with tower_watched(model) as calls:
        found = model.evidence([instance] * 6, orders)
        assert sum(calls) == 6
        assert model.vision.encoded == 6
        again = model.evidence([question(n=6)], [orders[3]], EvidenceSettings(labelled=True))
        assert sum(calls) == 6, "other words about the same images"
        model.evidence([question(number=9)], [(0, 1, 2, 3)])
        assert sum(calls) == 10
    assert len(found) == 6
    assert len(again) == 1


def test_the_same_picture_twice_is_encoded_once() -> None:
    model = fresh("qwen2_vl")
    same, other = noise(1), noise(2)
    model.evidence([Instance("x", (same, other, same), caption="a")], [(0, 1, 2)])
    assert model.vision.encoded == 2


def test_other_sizes_and_options_are_other_images() -> None:
    model = fresh("qwen2_vl")
    for settings in (
        EvidenceSettings(),
        EvidenceSettings(image_size=(32, 32)),
        EvidenceSettings(processor_options='{"do_normalize": false}'),
    ):
        model.evidence([question()], [(0, 1, 2, 3)], settings)
    assert model.vision.encoded == 12


def test_a_cache_without_room_changes_no_number() -> None:
    instances, orders = [question(), question()], [(0, 1, 2, 3), (3, 1, 0, 2)]
    none = fresh("qwen3_vl", vision_cache=0)
    found = none.evidence(instances, orders) + none.evidence(instances, orders)
    kept = fresh("qwen3_vl").evidence(instances, orders)
    for mine, expected in zip(found, kept * 2, strict=True):
        np.testing.assert_allclose(mine.log_probs, expected.log_probs, rtol=0, atol=1e-5)
        np.testing.assert_allclose(mine.attention, expected.attention, rtol=0, atol=1e-5)


def flattened(output: Any) -> Tensor:
    """All numbers of a field, in order."""
    if isinstance(output, Tensor):
        return output.flatten()
    if isinstance(output, (list, tuple)):
        return torch.cat([flattened(item) for item in output])
    return torch.tensor([float(output)])


@pytest.mark.parametrize("model_type", [name for name in ZOO if name not in SLOW | WHOLE])
def test_features_joined_are_those_of_the_stock_call(model_type: str) -> None:
    """Of four pictures, two of equal size, that were processed and encoded one by one."""
    model = asked(model_type)
    assert SIZES[0] == SIZES[2]
    order = (2, 0, 3, 1)
    joined = join(model._features([prompt_of(model, question(), order)]))  # type: ignore[arg-type]
    stock = stock_inputs(model, question(), order)
    base = model.backbone.base
    accepted = inspect.signature(base.get_image_features).parameters  # type: ignore[arg-type]
    with torch.no_grad():
        expected = base.get_image_features(  # type: ignore[operator]
            **{k: v for k, v in stock.items() if k in accepted}, return_dict=True
        )
    fields = [k for k in joined if expected.get(k) is not None]
    assert fields
    for name in fields:
        mine, theirs = flattened(joined[name]), flattened(expected[name])
        assert mine.shape == theirs.shape
        assert theirs.std() > 1e-4
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
