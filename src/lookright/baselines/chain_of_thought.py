"""chain_of_thought: the model reasons aloud, then answers."""

from __future__ import annotations

from lookright.baselines.baseline import Baseline
from lookright.baselines.reading import after_thought, thought_and_answered

CHAIN_OF_THOUGHT = Baseline(
    "chain_of_thought",
    defaults={"max_new_tokens": 1024},
    # Its prompt ends in an open <think>, not in "Answer:": no space belongs after that.
    changes={"prompt": "chain_of_thought", "trailing_space": False},
    own_prompt=True,
    read={"paper": after_thought, "released": after_thought},
    done=thought_and_answered,
)
