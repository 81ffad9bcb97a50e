"""What all tests share: property tests draw the same examples every time, by no clock."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("lookright", derandomize=True, deadline=None)
settings.load_profile("lookright")
