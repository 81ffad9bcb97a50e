"""What this machine has: packages, devices, memory, folders."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from lookright.errors import InputError
from lookright.processors import torchvision_works

#: Packages that change what works here without being needed.
OPTIONAL = ("accelerate", "huggingface_hub", "tokenizers", "torchvision")


@dataclass(frozen=True)
class Device:
    """A place a model can run on; None where the system does not tell."""

    name: str  # as torch names it
    description: str
    memory: int | None  # bytes
    free: int | None  # bytes


@dataclass(frozen=True)
class Folder:
    """Where downloads are kept."""

    name: str
    path: str
    exists: bool
    writable: bool
    free: int  # bytes left on its disk


def versions() -> dict[str, str | None]:
    """Python, lookright and the packages it stands on; None for what is not installed."""
    core = ("lookright", "torch", "transformers", "numpy")  # asked of an uninstalled tree, too
    names = dict.fromkeys((*core, *(_name(r) for r in requirements()), *OPTIONAL))
    return {"python": platform.python_version()} | {name: installed(name) for name in names}


def requirements() -> list[str]:
    """What lookright cannot do without, in pip's words; unknown where it runs uninstalled."""
    try:
        stated = requires("lookright") or []
    except PackageNotFoundError:
        return []
    return [r for r in stated if "extra ==" not in r]


def unmet() -> list[str]:
    """A sentence for each requirement that is missing or too old."""
    from transformers.utils.versions import require_version

    found = []
    for requirement in requirements():
        try:
            require_version(requirement)
        except (ImportError, PackageNotFoundError):
            have = installed(_name(requirement)) or "nothing"
            found.append(f"{requirement} is needed, and {have} is installed")
    return found


def torchvision() -> str:
    """Whether torchvision can be used. Images need it in hardly any family, videos do."""
    if torchvision_works():
        return "works"
    return "installed, but does not work" if installed("torchvision") else "not installed"


def devices() -> list[Device]:
    """The processor, and every accelerator torch can use."""
    import torch

    total, free = host_memory()
    found = [Device("cpu", f"{_cores()} cores, {platform.machine()}", total, free)]
    for index in range(torch.cuda.device_count()):
        left, size = torch.cuda.mem_get_info(index)
        found.append(Device(f"cuda:{index}", torch.cuda.get_device_name(index), size, left))
    if torch.backends.mps.is_available():
        size = torch.mps.recommended_max_memory()
        left = size - torch.mps.driver_allocated_memory()
        found.append(Device("mps", "Apple GPU", size, left))
    return found


def chosen(found: list[Device], name: str | None) -> Device:
    """The device of that name (`cuda` is the first GPU); without one the first accelerator."""
    if name is None:
        return found[min(1, len(found) - 1)]
    for device in found:
        if name in (device.name, device.name.split(":")[0]):
            return device
    raise InputError(f"there is no device {name!r} here, only {', '.join(d.name for d in found)}")


def folders() -> list[Folder]:
    """Where transformers keeps what it downloads."""
    from huggingface_hub import constants

    names = {"HF_HOME": constants.HF_HOME, "HF_HUB_CACHE": constants.HF_HUB_CACHE}
    return [_folder(name, Path(path)) for name, path in names.items()]


def offline() -> bool:
    """Whether downloads are switched off (HF_HUB_OFFLINE)."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def host_memory() -> tuple[int | None, int | None]:
    """Bytes of main memory and bytes free, within the limit of the container we may be in."""
    total, free = _system_memory()
    limit, used = (_number(Path("/sys/fs/cgroup", f"memory.{name}")) for name in ("max", "current"))
    if limit is not None and (total is None or limit < total):
        left = None if used is None else limit - used
        return limit, left if free is None or left is None else min(free, left)
    return total, free


def _system_memory() -> tuple[int | None, int | None]:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        pages = os.sysconf_names.get("SC_PHYS_PAGES") if hasattr(os, "sysconf_names") else None
        return (os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE") if pages else None), None
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    return sizes.get("MemTotal"), sizes.get("MemAvailable")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _cores() -> int:
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _folder(name: str, path: Path) -> Folder:
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    writable = os.access(there, os.W_OK)
    return Folder(name, str(path), path.is_dir(), writable, shutil.disk_usage(there).free)


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement)[0]


def installed(package: str) -> str | None:
    """Its version."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
