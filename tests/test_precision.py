"""Which floats a run takes, on this machine and on machines that are not here."""

from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from tfcli import precision as module
from tfcli.build import make
from tfcli.errors import ConfigError
from tfcli.precision import NARROW, Precision, cpu_has_bf16

CONFIGS = Path(__file__).parents[1] / "configs" / "precision"
CHOICES = sorted(p.stem for p in CONFIGS.glob("*.yaml"))


@pytest.fixture
def cpu(monkeypatch):
    """A CPU that has bf16 products, or has not."""
    return lambda has: monkeypatch.setattr(module, "cpu_has_bf16", lambda: has)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that is not here."""

    def pretend(has: bool) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has)

    return pretend


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_builds_and_is_named_as_its_file(choice):
    precision = make(OmegaConf.load(CONFIGS / f"{choice}.yaml"), "precision")
    assert precision.name == choice and precision.why == "as asked"


def test_auto_is_bf16_on_a_cpu_that_has_it_where_the_model_is_wide_enough(cpu):
    cpu(True)
    for width, name in ((None, "bf16"), (NARROW, "bf16"), (384, "bf16"), (NARROW - 1, "fp32"), (32, "fp32")):
        assert Precision("auto").resolve("cpu", width).name == name
    assert f"below a width of {NARROW}" in Precision("auto").resolve("cpu", 32).why


def test_auto_is_fp32_where_bf16_would_be_emulated(cpu):
    cpu(False)
    chosen = Precision("auto").resolve("cpu", 4096)
    assert (chosen.name, chosen.why) == ("fp32", "this cpu has no fast bf16 matrix products")
    assert Precision("auto").resolve("mps", 4096).name == "fp32"


def test_auto_takes_what_the_gpu_has(gpu):
    for has, name in ((True, "bf16"), (False, "fp16")):
        gpu(has)
        chosen = Precision("auto").resolve("cuda", 32)
        assert chosen.name == name and chosen.why.startswith("Some GPU has")


def test_what_is_asked_for_is_what_is_taken(cpu):
    cpu(False)
    for name in ("fp32", "bf16"):
        assert Precision(name).resolve("cpu", 32) == Precision(name)
    assert Precision("fp16").resolve("cuda", 32) == Precision("fp16")


def test_fp16_without_cuda_is_refused():
    with pytest.raises(
        ConfigError, match="precision=fp16: needs CUDA, and this run is on cpu; use precision=bf16"
    ):
        Precision("fp16").resolve("cpu")


def test_another_name_is_refused():
    with pytest.raises(ConfigError, match="precision.name='fp8': must be one of auto, fp32, bf16, fp16"):
        make({"_target_": "tfcli.precision.Precision", "name": "fp8"}, "precision")


def test_matrix_products_are_made_in_it_and_weights_and_gradients_are_not():
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        layer, precision = torch.nn.Linear(4, 4), Precision(name)
        with precision.autocast("cpu"):
            y = layer(torch.randn(2, 4))
        assert y.dtype is dtype is precision.dtype
        y.float().sum().backward()
        assert layer.weight.dtype is layer.weight.grad.dtype is torch.float32


def test_the_scaler_of_a_precision_that_needs_none_does_nothing():
    scaler = Precision("bf16").scaler("cpu")
    x = torch.nn.Parameter(torch.ones(2))
    scaler.scale(x.sum()).backward()
    optimizer = torch.optim.SGD([x], lr=0.5)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert x.tolist() == [0.5, 0.5] and not scaler.is_enabled() and scaler.state_dict() == {}


@pytest.mark.parametrize("name", ["avx512_bf16", "amx_bf16", "bf16"])
def test_the_processor_is_asked_for_bf16_by_all_its_names(name, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {name: True, "avx2": True}, raising=False)
    assert cpu_has_bf16()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {name: False, "avx512_f": True}, raising=False)
    assert not cpu_has_bf16()
