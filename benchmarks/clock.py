"""The time of an arm, from before Python itself came up. It needs nothing but Linux."""

from __future__ import annotations

import os
import time
from pathlib import Path


def seconds_since_start() -> float:
    """Seconds since this process was started, before Python itself came up."""
    # Not psutil's create_time, which adds a time of boot that is rounded to whole seconds.
    after_name = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2]
    started_ticks = int(after_name.split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
