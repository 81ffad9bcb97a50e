"""sofa (Tian et al. 2025): images see each other a little, scored like vanilla.

The mask itself is one of the settings of evidence (`sofa_sigma`), see `lookright.softened`.
"""

from __future__ import annotations

from lookright.baselines.baseline import Baseline

SOFA = Baseline("sofa", defaults={"sigma": 0.5})
