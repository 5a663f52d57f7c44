"""How gradients become new weights: recipes with `lr`, `weight_decay` and `build(model)`.

Beside what torch wants, every group of a built optimizer has `names`, `kind` and `base_lr`; its rate at a
step is `base_lr` times the schedule's factor, which `set_lr` sets.
"""

from torch.optim import Optimizer

from tfcli.optimizer.adafactor import Adafactor as Adafactor
from tfcli.optimizer.clip import clip_gradients as clip_gradients
from tfcli.optimizer.groups import decays as decays
from tfcli.optimizer.groups import trainable as trainable
from tfcli.optimizer.lion import Lion as Lion
from tfcli.optimizer.muon import Muon as Muon
from tfcli.optimizer.native import SGD as SGD
from tfcli.optimizer.native import Adam as Adam
from tfcli.optimizer.native import AdamW as AdamW
from tfcli.optimizer.state import load_state_by_name as load_state_by_name
from tfcli.optimizer.state import state_by_name as state_by_name


def set_lr(optimizer: Optimizer, factor: float) -> float:
    """Every group's rate as its own base times the factor. Returns the rate to show, the first group's."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
    return optimizer.param_groups[0]["lr"]
