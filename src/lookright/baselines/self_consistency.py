"""self_consistency: several sampled answers vote."""

from __future__ import annotations

from lookright.baselines.baseline import Baseline
from lookright.baselines.reading import after_the_answer_is, released_sample

SELF_CONSISTENCY = Baseline(
    "self_consistency",
    defaults={"samples": 10, "temperature": 0.7, "top_k": None, "max_new_tokens": 512},
    released={"top_k": 40},
    changes={"prompt": "self_consistency"},
    own_prompt=True,
    read={"paper": after_the_answer_is, "released": released_sample},
)
