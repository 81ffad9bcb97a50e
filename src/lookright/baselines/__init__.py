"""The baselines: what needs forward passes of its own to be compared with the methods, by name.

A baseline gives evidence under settings of its own, scored like vanilla, or generates texts that
are kept and read. `BASELINES[name]` says which, and what can be known without a model.
"""

from __future__ import annotations

from collections.abc import Mapping

from lookright.baselines.baseline import Baseline
from lookright.baselines.chain_of_thought import CHAIN_OF_THOUGHT
from lookright.baselines.embedding import EMBEDDING
from lookright.baselines.instruction import INSTRUCTION
from lookright.baselines.pointwise import POINTWISE
from lookright.baselines.self_consistency import SELF_CONSISTENCY
from lookright.baselines.sofa import SOFA
from lookright.baselines.vanilla_generate import VANILLA_GENERATE
from lookright.errors import InputError, shown
from lookright.methods import suggestion


class _Baselines(dict[str, Baseline]):
    """The baselines by name; an unknown one is answered with the nearest there is."""

    def __missing__(self, name: object) -> Baseline:
        text = shown(str(name))
        raise InputError(f"unknown baseline {text!r}" + suggestion(text, self, "there is none"))


BASELINES: Mapping[str, Baseline] = _Baselines(
    {
        baseline.name: baseline
        for baseline in (
            INSTRUCTION,
            CHAIN_OF_THOUGHT,
            SELF_CONSISTENCY,
            VANILLA_GENERATE,
            SOFA,
            POINTWISE,
            EMBEDDING,
        )
    }
)
