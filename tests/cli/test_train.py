"""tf-train as its user meets it: overrides, help, and one line for every mistake before anything is
touched.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import TINY_RUN
from omegaconf import DictConfig, OmegaConf

from tfcli import assemble, build, choices
from tfcli.cli import door
from tfcli.cli.train import command, first_read
from tfcli.errors import ConfigError
from tfcli.start import start

SHORT = "not enough"
MISTAKES = [
    (["optimzer.lr=1"], "optimzer.lr: no such key; did you mean 'optimizer'?"),
    (["optimizer.lrr=1"], "optimizer.lrr: no such key; did you mean 'lr'?"),
    (["+foo=3"], "foo: no such key"),
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
    (["device=cudda"], "device=cudda: must be auto, cpu, cuda or cuda:N"),
    (["device=meta"], "device=meta: must be auto, cpu, cuda or cuda:N"),
    (["device=cuda:x"], "device=cuda:x: must be auto, cpu, cuda or cuda:N"),
    (["device=1"], "device=1: must be text"),
    (["name=null"], "name=null: must be text"),
    (["out=3"], "out=3: must be text or null"),
    (["resume=true"], "resume=True: must be text or null"),
    (["seed=1e19"], "seed=1e+19: must be a whole number at least 0 and at most 9.22"),
    (["log.tensorboard=yes please"], "log.tensorboard='yes please': must be true or false"),
    (["log.wandb=0"], "log.wandb=0: must be true or false"),
    (["train=5"], "train: must be keys with values"),
    (["log=null"], "log: must be keys with values"),
    (["~norm"], "norm: missing; must be one of batchnorm,"),
    (["norm=null"], "norm=null: norm has no such choice; it offers batchnorm,"),
    (["~optimizer"], "optimizer: missing; must be one of"),
    (["~seed"], "seed: missing"),
    (["optimizer=5"], "optimizer=5: optimizer has no such choice"),
    (["size.d_model.x=1"], "size.d_model.x"),
    (["position=rope_yarn", "position.base=1"], "position.base=1: must be"),
    (["train.patience=2", "train.eval_every=null"], "train.patience=2"),
    (["--config-dir"], "--config-dir: needs a value"),
    (["--config-dir="], "--config-dir: needs a value"),
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


@pytest.mark.parametrize("inside", ["", "/below/it"])
def test_an_out_that_a_file_is_in_the_way_of_is_refused_before_data_is_read(
    inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setattr(assemble, "assemble", lambda plan: pytest.fail("data touched"))
    with pytest.raises(ConfigError, match=r"out=.*file"):
        command([f"out={tmp_path / 'file'}{inside}"])


def test_an_out_where_nothing_may_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assemble.os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match="no permission to write"):
        assemble.check_can_be_made(tmp_path / "a/b", "out=a/b")


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
    assert [p.name for p in (tmp_path / "here").iterdir()] == ["runs"]


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
    family = "encoder" if "bert" in preset else "decoder"
    both = preset in ("t5", "t5_1_1", "bart", "marian", "transformer2017")
    assert build.rehearse(config).family == ("encoder_decoder" if both else family)


def test_a_folder_of_ones_own_offers_further_choices(tmp_path: Path) -> None:
    (tmp_path / "ffn").mkdir()
    (tmp_path / "ffn/mine.yaml").write_text("defaults: [relu, _self_]\nactivation: silu\n")
    config = door.compose("train", ["ffn=mine"], [tmp_path])
    assert config.ffn.activation == "silu"
    with pytest.raises(ConfigError, match="ffn=mine"):
        door.compose("train", ["ffn=mine"])


@pytest.mark.parametrize("name", ["a=b,c", "it's mine", "x y [z]"])
def test_a_folder_of_ones_own_may_have_any_name_and_is_in_the_help(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    own = tmp_path / name
    (own / "ffn").mkdir(parents=True)
    (own / "ffn/mine.yaml").write_text("# my own idea\ndefaults: [relu, _self_]\n")
    assert door.compose("train", ["ffn=mine"], [own]).choices.ffn == "mine"
    command(["--config-dir", str(own), "--help"])
    assert re.search(r"^  mine +my own idea$", capsys.readouterr().out, re.MULTILINE)


def test_an_unknown_key_of_another_command_lists_that_commands_keys() -> None:
    with pytest.raises(ConfigError) as mistake:
        door.compose("generate", ["overlong_nonsense=2"])
    assert "max_new_tokens" in str(mistake.value) and "sampler" in str(mistake.value)
    assert not any(word in str(mistake.value) for word in ("optimizer", "choices", "overrides", "tokenizer"))


@pytest.mark.parametrize("line", ["a.B", "a.B  # why", "'a.B'", '"a.B" # why'])
def test_a_constructor_is_found_in_every_way_of_writing_it(line: str) -> None:
    assert choices.targets_in(f"x:\n  _target_: {line}\nother: 1\n") == ["a.B"]


@pytest.fixture
def run_of(train: Callable[..., None], tmp_path: Path) -> Callable[..., Path]:
    """A run of one step."""

    def run(name: str, *overrides: str) -> Path:
        train("train.steps=1", f"out={tmp_path / name}", *overrides)
        return tmp_path / name

    return run


def started(*overrides: str) -> DictConfig:
    def compose(said: Sequence[str]) -> DictConfig:
        return door.compose("train", said)

    return start(compose(first_read(list(overrides))), list(overrides), compose, [], print)[0]


def test_init_from_says_the_old_models_choices_again_and_the_new_ones_after_them(
    run_of: Callable[..., Path],
) -> None:
    old = run_of("old", "position.base=500", "size.head_dim=null")
    alone = started(f"init_from={old}")
    assert alone.train.seq_len == alone.size.context == 24
    assert alone.position.base == 500
    assert (alone.choices.tokenizer, alone.train.steps) == ("char", 500)
    assert started(f"init_from={old}", "size.d_model=128").norm.d_model == 128
    scaled = started(f"init_from={old}", "position=rope_linear")
    assert scaled.choices.position == "rope_linear" and scaled.position.base == 500
    assert started(f"init_from={old}", "preset=bloom").choices.position == "alibi"


def test_weights_of_another_width_and_a_tokenizer_are_refused_with_init_from(
    run_of: Callable[..., Path], corpus: Path, tmp_path: Path
) -> None:
    old = run_of("old")
    for said in ("tokenizer=char", "tokenizer.allow_special=true"):
        with pytest.raises(ConfigError, match=rf"^{said}: init_from=.* brings its own tokenizer"):
            started(f"init_from={old}", said)
    words = [
        f"init_from={old}",
        "size.d_model=128",
        "data=text",
        f"data.path={corpus}",
        "data.sample_by=line",
    ]
    with pytest.raises(ConfigError, match=r"is \(.*16\), the model's is"):
        command([*words, "train.batch_size=2", f"out={tmp_path / 'new'}"])


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("size.d_model=64", "size.d_model=64: a run that goes on keeps its size (size.d_model=16)"),
        ("attention=mha_bias", "attention=mha_bias: a run that goes on keeps its attention (attention=mha)"),
        ("data=stdlib", "data=stdlib: a run that goes on keeps its data (data=text)"),
        ("preset=bloom", "preset=bloom: a run that goes on keeps its preset (preset=None)"),
        ("seed=5", "seed=5: a run that goes on keeps its seed (seed=1337)"),
        ("tokenizer=byte", "start a new run without init_from"),
    ],
)
def test_what_a_resumed_run_keeps_is_refused_by_the_key_that_was_typed(
    run_of: Callable[..., Path], change: str, line: str
) -> None:
    with pytest.raises(ConfigError) as mistake:
        started(f"resume={run_of('old')}", change)
    assert line in str(mistake.value)


def test_only_what_the_schedule_depends_on_is_said_to_compute_it_anew(
    run_of: Callable[..., Path], capsys: pytest.CaptureFixture
) -> None:
    changes = ["train.steps=9", "train.log_every=3", "optimizer.weight_decay=0.3", "schedule=linear"]
    config = started(f"resume={run_of('old')}", *changes, "size.dropout=0.1", "train.recompute=true")
    said = [line for line in capsys.readouterr().out.splitlines() if "computed anew" in line]
    assert {line.split("=")[0] for line in said} == {
        "changed: train.steps", "changed: schedule.steps", "changed: schedule._target_",
        "changed: schedule.floor",
    }  # fmt: skip
    assert (config.choices.schedule, config.choices.tokenizer) == ("linear", "char")
    assert config.family.recompute is True


def test_a_run_is_resumed_and_its_data_found_from_another_folder(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "else").mkdir()
    command([*TINY_RUN, "train.steps=1", "data.path=*.txt", "out=run"])
    monkeypatch.chdir(tmp_path / "else")
    command(["resume=../run", "train.steps=2", "data.path=../*.txt"])
    config = OmegaConf.load(tmp_path / "run/config.yaml")
    assert Path(config.data.path) == tmp_path / "*.txt"
    assert config.data.validation_path is None


def test_the_table_shows_the_numbers_of_the_size(
    train: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    train("train.steps=1", f"out={tmp_path / 'run'}")
    assert "tiny (d_model 16, n_layers 2, n_heads 2, context 24)" in capsys.readouterr().err


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
