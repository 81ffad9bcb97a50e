"""vanilla_generate: the likeliest answer is generated and read, instead of scored."""

from __future__ import annotations

from lookright.baselines.baseline import Baseline
from lookright.baselines.reading import last_digits, last_named

VANILLA_GENERATE = Baseline(
    "vanilla_generate",
    defaults={"max_new_tokens": 16},
    released={"max_new_tokens": 2},
    read={"paper": last_named, "released": last_digits},
)
