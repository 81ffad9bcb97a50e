"""instruction: a prompt that asks to be fair to the order, scored like vanilla."""

from __future__ import annotations

from lookright.baselines.baseline import Baseline

INSTRUCTION = Baseline("instruction", changes={"prompt": "instruction"}, own_prompt=True)
