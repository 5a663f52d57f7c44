"""Where a model runs."""

import re

import torch

from tfcli.errors import ConfigError


def pick_device(name: str) -> torch.device:
    """auto: CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not isinstance(name, str) or not re.fullmatch(r"cpu|cuda(:[0-9]{1,2})?", name):
        raise ConfigError(f"device={name}: must be auto, cpu, cuda or cuda:N")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={name}: this machine has no CUDA; use device=cpu")
    if (device.index or 0) >= max(torch.cuda.device_count(), 1):
        raise ConfigError(f"device={name}: must be below cuda:{torch.cuda.device_count()}, all there are")
    return device
