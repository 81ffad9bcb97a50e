"""Multimodal LLMs that answer by what they look at, not by where it stands."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Public name -> the module that defines it; imported at first use, so that `import lookright`
#: loads neither torch nor transformers.
_HOME = {
    "METHODS": "methods",
    "Calibration": "calibration",
    "Evidence": "evidence",
    "EvidenceArray": "evidence",
    "EvidenceSettings": "settings",
    "InputError": "errors",
    "Instance": "instance",
    "Model": "model",
    "Selector": "selector",
}
__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from lookright.calibration import Calibration as Calibration
    from lookright.errors import InputError as InputError
    from lookright.evidence import Evidence as Evidence
    from lookright.evidence import EvidenceArray as EvidenceArray
    from lookright.instance import Instance as Instance
    from lookright.methods import METHODS as METHODS
    from lookright.model import Model as Model
    from lookright.selector import Selector as Selector
    from lookright.settings import EvidenceSettings as EvidenceSettings


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'lookright' has no attribute {name!r}")
    value = getattr(import_module(f"lookright.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
