"""Where a model runs."""

import torch

from tfcli.errors import ConfigError


def pick_device(name: str) -> torch.device:
    """auto: CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise ConfigError(f"device={name}: must be auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={name}: this machine has no CUDA; use device=cpu")
    return device
