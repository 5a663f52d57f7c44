"""Which floats a run makes its matrix products in; weights and optimizer state stay in fp32."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch

from tfcli.errors import ConfigError

Name = Literal["auto", "fp32", "bf16", "fp16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
NARROW = 192  # below this width, converting to bf16 costs a CPU more than its products save (measured)


@dataclass(frozen=True)
class Precision:
    """fp32, or autocast to 16 bits over fp32 master weights  (Micikevicius et al. 2017, arXiv 1710.03740)

    `auto` is a wish: `resolve` makes it one of the others, which is what a run works with and stores.
    """

    name: Name
    why: str = "as asked"

    @property
    def dtype(self) -> torch.dtype:
        """What matrix products are made in. Only for a resolved precision."""
        return DTYPES[self.name]

    def resolve(self, device: torch.device | str, width: int | None = None) -> "Precision":
        """The same without `auto`: its `name` is to store, its `why` to print. `width` is the model's.

        Raises ConfigError for fp16 where there is no CUDA.
        """
        device = torch.device(device)
        if self.name == "auto":
            return _fastest_on_cuda(device) if device.type == "cuda" else _fastest_on_cpu(device, width)
        if self.name == "fp16" and device.type != "cuda":
            instead = "use precision=bf16 or precision=fp32"
            raise ConfigError(f"precision=fp16: needs CUDA, and this run is on {device.type}; {instead}")
        return self

    def autocast(self, device: torch.device | str) -> AbstractContextManager:
        """What the forward pass and the loss run in; the backward pass follows by itself."""
        if self.dtype is torch.float32:
            return nullcontext()
        return torch.autocast(torch.device(device).type, dtype=self.dtype)

    def scaler(self, device: torch.device | str) -> torch.amp.GradScaler:
        """Scales the loss so that fp16 gradients do not vanish; for other precisions it does nothing."""
        return torch.amp.GradScaler(torch.device(device).type, enabled=self.name == "fp16")


def _fastest_on_cuda(device: torch.device) -> Precision:
    gpu = torch.cuda.get_device_name(device)
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return Precision("bf16", f"{gpu} has bf16 matrix products")
    return Precision("fp16", f"{gpu} has no bf16 matrix products")


def _fastest_on_cpu(device: torch.device, width: int | None) -> Precision:
    if device.type != "cpu" or not cpu_has_bf16():
        return Precision("fp32", f"this {device.type} has no fast bf16 matrix products")
    if width is not None and width < NARROW:
        return Precision(
            "fp32", f"on a CPU bf16 does not pay below a width of {NARROW}, and this model's is {width}"
        )
    return Precision("bf16", "this CPU has bf16 matrix products")


def cpu_has_bf16() -> bool:
    """Whether the processor multiplies bf16 (AVX512-BF16, AMX, Arm); emulated, it is slower than fp32."""
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    if capabilities:
        return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    queries = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # older torch has no public query
    return any(getattr(torch.cpu, query, bool)() for query in queries)
