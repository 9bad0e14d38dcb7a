"""How the programs that run networks begin."""

from __future__ import annotations

import time

import torch


class Clock:
    """Prints lines with the seconds since the program began; products and convolutions are exact from then on."""

    def __init__(self) -> None:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self._begin = time.time()

    @property
    def seconds(self) -> float:
        """Seconds since the program began."""
        return round(time.time() - self._begin, 1)

    @property
    def processor_seconds(self) -> float:
        """Seconds that the processor worked for this program, all cores together."""
        return round(time.process_time(), 1)

    def __call__(self, what: str) -> None:
        """Print what was done."""
        print(f"[{self.seconds:6.1f}] {what}", flush=True)
