"""What the model runs on: which device, and how many CPU threads."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from loaders.errors import DeviceError

_CUDA = re.compile(r"cuda(?::(\d{1,4}))?")


def resolve_device(requested: str, cuda_devices: Callable[[], int]) -> str:
    """The device, "cpu" or "cuda:N", for what was asked for: "auto", "cpu", "cuda" or "cuda:N".

    cuda_devices: how many CUDA devices the framework sees; not called for "cpu". "auto" takes the first one
    there is and falls back to the CPU. Raises `DeviceError` when a CUDA device is asked for that is not there.
    """
    index = cuda_index(requested)
    if requested == "cpu":
        return "cpu"
    count = cuda_devices()
    if requested == "auto":
        return "cuda:0" if count else "cpu"
    if not count:
        raise DeviceError(
            f"DEVICE={requested} was asked for, but no CUDA device can be used here; "
            "set DEVICE=auto or DEVICE=cpu, or install the framework's CUDA build and driver"
        )
    if index >= count:
        raise DeviceError(
            f"DEVICE={requested} was asked for, but there are only {count} CUDA devices (0 to {count - 1})"
        )
    return f"cuda:{index}"


def cuda_index(requested: str) -> int:
    """The number in "cuda:N", 0 for the other names; raises `DeviceError` for anything else."""
    match = _CUDA.fullmatch(requested)
    if match is None and requested not in {"auto", "cpu"}:
        raise DeviceError(f"DEVICE={requested!r} is not a device; allowed are auto, cpu, cuda and cuda:N")
    return int(match[1] or 0) if match else 0


def compute_threads(environ: Mapping[str, str] | None = None, *, instances: int = 1) -> int:
    """Threads that one operator of the model may use: what `OMP_NUM_THREADS` says, no more than there are CPUs; where
    it says nothing an equal share of these for each of so many `instances` in this process.

    Several processes on one machine share its CPUs through that variable.
    """
    asked = (os.environ if environ is None else environ).get("OMP_NUM_THREADS", "")
    # The OpenMP standard allows a list, one number per nesting level; the first is the outer one.
    first = asked.partition(",")[0].strip()
    available = cpu_count()
    if first.isdecimal() and int(first) > 0:
        return min(available, int(first))
    return max(1, available // instances)


def cpu_count(*, proc_cgroup: Path = Path("/proc/self/cgroup"), cgroup_root: Path = Path("/sys/fs/cgroup")) -> int:
    """CPUs that the calling thread, and the threads it starts, may use; at least 1.

    The smaller of its CPU affinity and its control group's CPU quota (version 1 or 2), rounded down: one thread
    more than the quota allows is stopped by the kernel for the rest of each period.
    """
    quota = _cgroup_quota(proc_cgroup, cgroup_root)
    return max(1, math.floor(min(_affinity(), quota)))


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cgroup_quota(proc_cgroup: Path, cgroup_root: Path) -> float:
    """CPUs that the control groups allow, infinity without a limit. A parent's limit binds its children too."""
    limits = [math.inf]
    for line in _read(proc_cgroup).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            mount, read = cgroup_root, _quota_v2
        elif "cpu" in controllers.split(","):
            mount, read = _v1_mount(cgroup_root, controllers), _quota_v1
        else:
            continue
        # In a container the path may be the host's, which is not mounted here: the root is then the container's own.
        directory = mount / group.lstrip("/")
        for level in (directory, *directory.parents):
            if not level.is_relative_to(mount):
                break
            limits.append(read(level))
    return min(limits)


def _v1_mount(cgroup_root: Path, controllers: str) -> Path:
    joined = cgroup_root / controllers
    return joined if joined.is_dir() else cgroup_root / "cpu"


def _quota_v2(directory: Path) -> float:
    return _ratio(*(_read(directory / "cpu.max").split() or ["", ""]))


def _quota_v1(directory: Path) -> float:
    return _ratio(_read(directory / "cpu.cfs_quota_us").strip(), _read(directory / "cpu.cfs_period_us").strip())


def _ratio(quota: str, period: str = "100000") -> float:
    """Microseconds of CPU per period, as CPUs; "max" (version 2), "-1" (version 1) and no file mean no limit."""
    if not (quota.isdecimal() and period.isdecimal() and int(quota) and int(period)):
        return math.inf
    return int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
