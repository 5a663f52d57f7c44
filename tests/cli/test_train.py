"""tf-train as its user meets it: overrides, help, and one line for every mistake before anything is
touched.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TINY_RUN

from tfcli import assemble, build, choices
from tfcli.cli import door
from tfcli.cli.train import command
from tfcli.errors import ConfigError

SHORT = "not enough"
MISTAKES = [
    (["optimzer.lr=1"], "optimzer.lr: no such key; did you mean 'optimizer'?"),
    (["optimizer.lrr=1"], "optimizer.lrr: no such key; did you mean 'lr'?"),
    (["train.stepz=1"], "train.stepz: no such key; did you mean 'steps'?"),
    (["atention=mha"], "atention: no such key; did you mean 'attention'?"),
    (["attention=mhaa"], "attention=mhaa: attention has no such choice; did you mean 'mha'?"),
    (["optimizer.lr=abc"], "optimizer.lr='abc': must be a number above 0"),
    (["optimizer.lr=nan"], "optimizer.lr=nan: must be a number above 0"),
    (["optimizer.lr=1e309"], "optimizer.lr=inf: must be a number above 0"),
    (["optimizer.lr=-1"], "optimizer.lr=-1: must be a number above 0"),
    (["optimizer.lr=true"], "optimizer.lr=True: must be a number above 0"),
    (["optimizer.lr=null"], "optimizer.lr=null: must be a number above 0"),
    (["train.steps=0"], "train.steps=0: must be a whole number at least 1"),
    (["train.steps=1.5"], "train.steps=1.5: must be a whole number at least 1"),
    (["train.grad_clip=None"], "train.grad_clip='None': must be a number above 0 or null"),
    (["train.non_finite=stopp"], "train.non_finite='stopp': must be one of stop, skip; did you mean 'stop'?"),
    (["size.dropout=1"], "size.dropout=1: must be a number at least 0 and below 1"),
    (["seed=-1"], "seed=-1: must be a whole number at least 0"),
    (["seed=x"], "seed='x': must be a whole number at least 0"),
    (["size.d_model=100", "size.n_heads=3"], "size.d_model=100 must be a multiple of size.n_heads=3"),
    (["attention=gqa", "size.n_heads=4", "size.n_kv_heads=3"], "size.n_heads=4 must be a multiple of"),
    (["position=rope", "size.head_dim=7"], "head_dim=7"),
    (["position=learned", "train.seq_len=999"], "train.seq_len=999: must be at most size.context=24"),
    (
        ["train.batch_size=6", "train.micro_batch_size=4"],
        "train.micro_batch_size=4 must divide train.batch_size=6",
    ),
    (["precision=fp16"], "precision=fp16: needs CUDA"),
    (["device=cudda"], "device=cudda: must be auto, cpu or cuda"),
    (
        ["attention=sliding", "attention.rule.size=0"],
        "attention.rule.size=0: must be a whole number at least 1",
    ),
    (["attention=local_global", "attention.pattern=[local,fulll]"], "did you mean 'full'?"),
    (["out=a=b"], "put the value in quotes of its own"),
    (["data.path=/nowhere/at/all.txt"], "/nowhere/at/all.txt"),
    (["resume=/nowhere"], "/nowhere: no such folder"),
    (["init_from=."], "no checkpoint"),
    (["train"], "'train' is no key=value"),
]


@pytest.mark.parametrize(
    ("overrides", "line"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    overrides: list[str], line: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    with pytest.raises(ConfigError) as mistake:
        command([*TINY_RUN, f"data.path={corpus}", *overrides])
    assert line in str(mistake.value)
    assert "\n" not in str(mistake.value).strip()
    assert not list(work.iterdir())


@pytest.mark.parametrize("content", ["", "\n\n  \n"])
def test_an_empty_file_is_refused_by_name(content: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.write_text(content)
    with pytest.raises(ConfigError, match="empty.txt"):
        command([*TINY_RUN, f"data.path={path}", f"out={tmp_path / 'run'}"])
    assert not (tmp_path / "run").exists()


def test_a_corpus_shorter_than_one_block_is_refused_with_both_numbers(tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_text("abcdefgh")
    with pytest.raises(ConfigError, match=r"8 tokens to train on, need at least 25"):
        command([*TINY_RUN, "data.sample_by=document", "data.packing=stream", f"data.path={path}",
                 f"out={tmp_path / 'run'}"])  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_the_process_ends_with_2_and_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tfcli.cli.train", "attention=mhaa"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == "tf-train: attention=mhaa: attention has no such choice; did you mean 'mha'?\n"
    assert not done.stdout


def test_help_names_every_group_and_choice_and_imports_nothing_heavy(capsys: pytest.CaptureFixture) -> None:
    command(["--help"])
    text = capsys.readouterr().out
    for group in choices.groups():
        if group != "sampler":
            assert all(choice in text for choice in choices.choices(group))
    code = (
        "import sys; from tfcli.cli.train import command; command(['--help']);"
        "heavy = ('torch', 'hydra', 'omegaconf', 'datasets', 'numpy'); print([m for m in heavy if m in "
        "sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("[]")


def test_hydras_own_flags_work(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tfcli.cli.train", "--cfg", "job", "--resolve", "preset=gpt2",
        "optimizer.lr=3e-4"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "lr: 0.0003" in done.stdout
    assert "_target_: tfcli.model.position.learned.Learned" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_sweep_trains_every_combination_from_where_it_was_started(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    arguments = [*TINY_RUN, "train.steps=1", f"data.path=../{corpus.name}", "seed=1,2", "-m"]
    done = subprocess.run(
        [sys.executable, "-m", "tfcli.cli.train", *arguments],
        cwd=tmp_path / "here",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "here/runs/run").glob("*/checkpoints/step-00000001"))) == 2


@pytest.mark.parametrize("group", choices.groups())
def test_every_choice_of_every_group_composes_and_builds_or_is_refused(group: str) -> None:
    for choice in choices.choices(group):
        if group == "sampler":
            assert build.make(door.compose("generate", [f"sampler={choice}"]).sampler, "sampler")
            continue
        more = ["data.path=."] if (group, choice) in (("data", "text"), ("data", "hub")) else []
        try:
            assemble.plan(door.compose("train", [f"{group}={choice}", *more]))
        except ConfigError as refusal:
            assert "\n" not in str(refusal)


@pytest.mark.parametrize("preset", choices.choices("preset"))
def test_a_choice_on_the_command_line_wins_over_the_preset(preset: str) -> None:
    config = door.compose("train", ["attention=mqa", f"preset={preset}", "position=alibi", "norm=rmsnorm"])
    assert config.choices.attention == "mqa"
    assert config.choices.position == "alibi"
    assert build.rehearse(config).family == "decoder"


def test_a_folder_of_ones_own_offers_further_choices(tmp_path: Path) -> None:
    (tmp_path / "ffn").mkdir()
    (tmp_path / "ffn/mine.yaml").write_text("defaults: [relu, _self_]\nactivation: silu\n")
    config = door.compose("train", ["ffn=mine"], [tmp_path])
    assert config.ffn.activation == "silu"
    with pytest.raises(ConfigError, match="ffn=mine"):
        door.compose("train", ["ffn=mine"])


@pytest.mark.parametrize(
    ("size", "preset", "millions"),
    [
        ("gpt2_124m", "gpt2", 124.4), ("gpt2_355m", "gpt2", 354.8), ("gpt2_774m", "gpt2", 774.0),
        ("gpt2_1558m", "gpt2", 1557.6), ("gpt1", "gpt1", 116.5),
    ],
)  # fmt: skip
def test_published_sizes_have_the_published_number_of_parameters(
    size: str, preset: str, millions: float
) -> None:
    import torch

    vocabulary = 40478 if preset == "gpt1" else 50257
    with torch.device("meta"):
        model = build.model(
            door.compose("train", [f"preset={preset}", f"size={size}"]), vocabulary, fill=False
        )
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)


@pytest.mark.parametrize(
    ("size", "preset", "vocabulary", "billions"),
    [("llama2_7b", "llama2", 32000, 6.738), ("llama3_8b", "llama3", 128256, 8.030),
     ("mistral_7b", "mistral", 32000, 7.242)],
)  # fmt: skip
def test_published_llamas_have_the_published_number_of_parameters(
    size: str, preset: str, vocabulary: int, billions: float
) -> None:
    import torch

    with torch.device("meta"):
        model = build.model(
            door.compose("train", [f"preset={preset}", f"size={size}"]), vocabulary, fill=False
        )
    assert sum(p.numel() for p in model.parameters()) / 1e9 == pytest.approx(billions, abs=0.001)
