"""No position at all: a causal model still tells order from what each token can see."""

from tfcli.model.position import PositionScheme


class NoPosition(PositionScheme):
    """Nothing is added or turned (Haviv et al. 2022; Kazemnejad et al. 2023, NoPE)."""
