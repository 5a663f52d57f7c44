"""The training loop: exactness of resuming and accumulating, and what happens when things go wrong."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import TINY_RUN, metrics
from safetensors import SafetensorError
from safetensors.torch import load_file

from tfcli import checkpoint
from tfcli.batch import Batch
from tfcli.errors import ConfigError, RunError
from tfcli.runlog import JsonLines, RunLog
from tfcli.train import Run, Settings

Train = Callable[..., None]


def same_state(a: Path, b: Path) -> None:
    """Two checkpoints hold bitwise the same weights, optimizer, random numbers, place in the data and
    counters.
    """
    for name, tensor in load_file(a / "model.safetensors").items():
        assert torch.equal(tensor, load_file(b / "model.safetensors")[name]), name
    first, second = checkpoint.load_training(a), checkpoint.load_training(b)
    flat = [leaves(first), leaves(second)]
    assert flat[0].keys() == flat[1].keys()
    for path, value in flat[0].items():
        other = flat[1][path]
        same = torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other
        assert same, path


def leaves(tree: object, path: str = "") -> dict:
    if isinstance(tree, dict):
        return {k: v for key, node in tree.items() for k, v in leaves(node, f"{path}/{key}").items()}
    if isinstance(tree, list):
        return {k: v for i, node in enumerate(tree) for k, v in leaves(node, f"{path}/{i}").items()}
    return {path: tree}


NOISY = [
    "size.dropout=0.3",
    "train.batch_size=6",
    "train.micro_batch_size=2",
    "train.keep_last=50",
    "train.steps=14",
]


def test_a_run_stopped_and_resumed_three_times_is_the_run_never_stopped(train: Train, tmp_path: Path) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    train(*NOISY, f"out={straight}")
    train(*NOISY, f"out={broken}", "train.save_every=1")
    # 10 rows of training text and 6 a step: inside an epoch, at its end, and just before the last step
    for stop in (1, 5, 13):
        for folder in checkpoint.steps(broken):
            if checkpoint.step_of(folder) > stop:
                checkpoint.remove(folder)
        train(f"resume={broken}", tiny=False)
        same_state(checkpoint.steps(straight)[-1], checkpoint.steps(broken)[-1])
        assert metrics(straight) == metrics(broken)


@pytest.mark.parametrize("optimizer", ["adam", "adafactor", "lion", "muon", "sgd"])
def test_every_optimizer_resumes_exactly(train: Train, tmp_path: Path, optimizer: str) -> None:
    more = [f"optimizer={optimizer}", "train.keep_last=9", "train.save_every=2"]
    train(*more, f"out={tmp_path / 'a'}")
    train(f"resume={tmp_path / 'a/checkpoints/step-00000002'}", f"out={tmp_path / 'b'}", tiny=False)
    same_state(tmp_path / "a/checkpoints/step-00000006", tmp_path / "b/checkpoints/step-00000006")


def test_accumulated_micro_batches_equal_the_big_batch(train: Train, tmp_path: Path) -> None:
    sgd = ["optimizer=sgd", "optimizer.lr=1.0", "train.grad_clip=null", "train.steps=1", "schedule=constant",
           "schedule.warmup=0", "train.batch_size=8", "data.packing=none"]  # fmt: skip
    seen = []
    for size in (1, 2, 8):
        train(*sgd, f"train.micro_batch_size={size}", f"out={tmp_path / str(size)}")
        seen.append((load_file(tmp_path / f"{size}/checkpoints/step-00000001/model.safetensors"),
                     metrics(tmp_path / str(size))[0]))  # fmt: skip
    for weights, row in seen[1:]:
        assert row["loss"] == pytest.approx(seen[0][1]["loss"], abs=1e-6)
        assert row["grad_norm"] == pytest.approx(seen[0][1]["grad_norm"], abs=1e-5)
        for name, tensor in weights.items():
            assert torch.allclose(tensor, seen[0][0][name], atol=1e-6), name


def test_evaluating_leaves_no_trace_in_the_training(train: Train, tmp_path: Path) -> None:
    quiet = ["size.dropout=0.3", "train.keep_best=false"]
    train(*quiet, f"out={tmp_path / 'often'}", "train.eval_every=1", "train.sample_every=2")
    train(*quiet, f"out={tmp_path / 'never'}", "train.eval_every=null")
    last = [checkpoint.steps(tmp_path / name)[-1] / "model.safetensors" for name in ("often", "never")]
    assert all(torch.equal(t, load_file(last[1])[name]) for name, t in load_file(last[0]).items())


def test_newest_and_best_checkpoints_are_kept_by_number(train: Train, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(f"out={run}", "train.steps=12", "train.save_every=1", "train.keep_last=3", "train.eval_every=null")
    assert [checkpoint.step_of(p) for p in checkpoint.steps(run)] == [10, 11, 12]
    assert checkpoint.find(run).name == "step-00000012"


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third loss of a run is NaN, with all of its gradients."""
    real, count = Run.loss, iter(range(1, 1000))
    monkeypatch.setattr(
        Run, "loss", lambda self, batch: real(self, batch) * (float("nan") if next(count) == 3 else 1)
    )


@pytest.mark.usefixtures("poisoned")
def test_a_step_that_is_not_finite_stops_the_run_with_sane_weights(train: Train, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="step 3: loss nan.*not finite.*optimizer.lr"):
        train(f"out={tmp_path / 'bad'}")
    train(f"out={tmp_path / 'good'}", "train.save_every=2", "train.keep_last=9")
    assert checkpoint.find(tmp_path / "bad").name == "step-00000002"
    good = load_file(tmp_path / "good/checkpoints/step-00000002/model.safetensors")
    bad = load_file(checkpoint.find(tmp_path / "bad") / "model.safetensors")
    assert all(torch.equal(tensor, good[name]) for name, tensor in bad.items())


@pytest.mark.usefixtures("poisoned")
def test_a_step_that_is_not_finite_is_skipped_if_asked(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    train(f"out={tmp_path / 'run'}", "train.non_finite=skip")
    assert "step 3: loss nan" in capsys.readouterr().err
    assert metrics(tmp_path / "run")[-1]["step"] == 6
    weights = load_file(checkpoint.find(tmp_path / "run") / "model.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())


def test_training_stops_early_when_validation_no_longer_improves(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = tmp_path / "run"
    train(f"out={run}", "train.steps=50", "train.eval_every=1", "train.patience=3", "optimizer.lr=1e-9")
    assert metrics(run)[-1]["step"] < 50 or "no better" in capsys.readouterr().err


def test_a_changed_horizon_is_said_and_the_rate_follows_it(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = tmp_path / "run"
    train(f"out={run}")
    train(f"resume={run}", "train.steps=10", "optimizer.lr=5e-4", tiny=False)
    said = capsys.readouterr().err
    assert "changed: train.steps=10 (was 6)" in said
    assert "changed: schedule.steps=10 (was 6)" in said
    assert "changed: optimizer.lr=0.0005 (was 0.001)" in said
    rates = [row["lr"] for row in metrics(run)]
    assert len(rates) == 10
    assert rates[9] == pytest.approx(5e-5)


@pytest.mark.parametrize(
    "change", ["attention=mqa", "size.d_model=32", "tokenizer=byte", "seed=5", "data.bos=false"]
)
def test_what_makes_the_run_another_cannot_change(train: Train, tmp_path: Path, change: str) -> None:
    run = tmp_path / "run"
    train(f"out={run}", "train.steps=1")
    with pytest.raises(ConfigError, match="init_from"):
        train(f"resume={run}", change, tiny=False)


def test_a_new_run_takes_weights_tokenizer_and_model_from_init_from(
    train: Train, tmp_path: Path, corpus: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    train(f"out={old}", "position=alibi")
    own = [f"data.path={corpus}", *(key for key in TINY_RUN if not key.startswith(("tokenizer", "size")))]
    train(*own, "train.steps=1", "optimizer.lr=1e-12", f"init_from={old}", f"out={new}", tiny=False)
    before, after = (load_file(checkpoint.find(run) / "model.safetensors") for run in (old, new))
    assert all(torch.allclose(tensor, after[name], atol=1e-9) for name, tensor in before.items())
    assert checkpoint.load(new).config.position == checkpoint.load(old).config.position


def test_a_second_run_does_not_write_over_the_first(train: Train, tmp_path: Path) -> None:
    train(f"out={tmp_path / 'run'}", "train.steps=1")
    with pytest.raises(ConfigError, match="resume="):
        train(f"out={tmp_path / 'run'}", "train.steps=1")


def test_a_damaged_newest_checkpoint_is_said_and_passed_over(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = tmp_path / "run"
    train(f"out={run}", "train.save_every=2", "train.keep_last=9")
    weights = run / "checkpoints/step-00000006/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    train(f"resume={run}", tiny=False)
    said = capsys.readouterr().err
    assert "step-00000006: damaged, model.safetensors has" in said
    assert metrics(run)[-1]["step"] == 6
    assert checkpoint.damage(run / "checkpoints/step-00000006") is None


def test_a_disk_that_is_full_costs_no_earlier_checkpoint(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    real = torch.save

    def full(state: dict, path: Path) -> None:
        real(state, path)
        if state["at"]["step"] > 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    run = tmp_path / "run"
    with pytest.raises(RunError, match="No space left"):
        train(f"out={run}", "train.save_every=1", "train.keep_last=9")
    assert [checkpoint.step_of(p) for p in checkpoint.steps(run)] == [1, 2]
    assert not list((run / "checkpoints").glob(".*"))
    assert capsys.readouterr().err.count("could not be written") == 4


@pytest.mark.parametrize("writer", ["safetensors.torch.save_file", "torch.save"])
def test_what_the_libraries_raise_on_a_full_disk_does_not_end_the_run(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    kind = SafetensorError if writer.startswith("safetensors") else RuntimeError

    def full(*args: object, **more: object) -> None:
        raise kind("No space left on device (os error 28)")

    monkeypatch.setattr(writer, full)
    with pytest.raises(RunError, match="step 6 could not be saved.*No space left"):
        train(f"out={tmp_path / 'run'}", "train.save_every=1")
    assert len(metrics(tmp_path / "run")) == 6


def test_a_log_and_a_drawing_that_cannot_be_written_are_said_once_and_the_run_goes_on(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def full(*args: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunLog, "write", full)
    monkeypatch.setattr(RunLog, "draw", full)
    train(f"out={tmp_path / 'run'}")
    said = capsys.readouterr().err
    assert said.count("the log could not be written") == said.count("loss.png could not be written") == 1
    assert checkpoint.find(tmp_path / "run").name == "step-00000006"


def test_a_line_that_a_full_disk_cuts_off_does_not_stay_in_the_log(tmp_path: Path) -> None:
    log = JsonLines(tmp_path / "metrics.jsonl")
    log.write(1, {"loss": 3.0})
    whole, _, hard = log._file.tell(), *resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 9, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            log.write(2, {"loss": 2.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    log.write(3, {"loss": 1.0})
    log.close()
    assert [row["step"] for row in metrics(tmp_path)] == [1, 3]


def test_the_last_step_is_saved_whatever_the_settings(train: Train, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(f"out={run}", "train.save_every=null", "train.eval_every=null", "train.keep_best=false")
    assert [checkpoint.step_of(p) for p in checkpoint.steps(run)] == [6]


def test_going_on_from_an_older_checkpoint_forgets_the_later_ones_of_that_folder_only(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    train(f"out={run}", "train.save_every=1", "train.keep_last=9")
    early = run / "checkpoints/step-00000002"
    train(f"resume={early}", f"out={other}", "train.steps=3", tiny=False)
    assert len(checkpoint.steps(run)) == 6
    train(f"resume={early}", "train.steps=3", tiny=False)
    assert [checkpoint.step_of(p) for p in checkpoint.steps(run)] == [1, 2, 3]
    assert capsys.readouterr().err.count("removed, as the run goes on from step 2") == 4


def test_a_run_at_its_end_has_nothing_to_do_and_one_past_it_is_refused(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = tmp_path / "run"
    train(f"out={run}")
    train(f"resume={run}", tiny=False)
    assert "already at step 6 of 6: nothing to do" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="train.steps=4: .* at step 6 already"):
        train(f"resume={run}", "train.steps=4", tiny=False)
    assert checkpoint.find(run).name == "step-00000006"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"patience": 2, "eval_every": None}, "train.patience=2.*train.eval_every=null"),
        ({"compile": True, "loss_chunk": 8}, "train.compile=true.*train.loss_chunk=8"),
    ],
)
def test_keys_that_would_mean_nothing_together_are_refused(keys: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Settings(steps=1, batch_size=1, seq_len=1, **keys).checked()


@pytest.mark.usefixtures("poisoned")
def test_a_step_that_was_saved_is_not_saved_again_and_the_message_says_what_follows(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, real = [], checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda *given: saved.append(given[1]) or real(*given))
    with pytest.raises(RunError, match="step 2 are in .*; a resumed run meets that batch again"):
        train(f"out={tmp_path / 'run'}", "train.save_every=1")
    assert saved == [1, 2]


def test_skipping_is_not_recommended_to_a_run_that_skips(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Run.loss
    monkeypatch.setattr(Run, "loss", lambda self, batch: real(self, batch) * float("nan"))
    with pytest.raises(RunError, match="step 10.*not finite.*behind that batch; try") as raised:
        train(f"out={tmp_path / 'run'}", "train.non_finite=skip", "train.steps=20")
    assert "non_finite=skip" not in str(raised.value)


def test_an_evaluation_cut_short_by_a_signal_leaves_no_mark(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Run.evaluate

    def evaluate(self: Run) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        real(self)

    monkeypatch.setattr(Run, "evaluate", evaluate)
    with pytest.raises(SystemExit) as raised:
        train(f"out={tmp_path / 'run'}", "train.patience=1")
    assert raised.value.code == 128 + signal.SIGTERM
    at = checkpoint.load_training(checkpoint.find(tmp_path / "run"))["at"]
    assert (at["step"], at["best_step"], at["since_best"]) == (3, None, 0)
    assert "val_loss" not in metrics(tmp_path / "run")[-1]


def test_steps_without_a_target_are_said_once_and_counted(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(Batch, "targets", 0)
    train(f"out={tmp_path / 'run'}", "train.eval_every=null")
    said = capsys.readouterr().err
    assert said.count("step 1: no token to score") == said.count("no token to score in its batch") == 1
    assert "6 steps had no token to score" in said


def test_a_training_state_of_another_version_is_refused(train: Train, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(f"out={run}")
    folder = checkpoint.find(run)
    state = checkpoint.load_training(folder)
    state["at"]["of_tomorrow"] = 1
    torch.save(state, folder / "training.pt")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["training.pt"] = (folder / "training.pt").stat().st_size
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match=r"run: its training\.pt is of another version"):
        train(f"resume={run}", "train.steps=9", tiny=False)


def test_chunked_loss_and_compiled_keys_change_nothing_that_is_learned(train: Train, tmp_path: Path) -> None:
    train(f"out={tmp_path / 'plain'}")
    train(f"out={tmp_path / 'chunked'}", "train.loss_chunk=7")
    for a, b in zip(metrics(tmp_path / "plain"), metrics(tmp_path / "chunked")):
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-5)


def start(tmp_path: Path, corpus: Path, *overrides: str) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "tfcli.cli.train",
        *TINY_RUN,
        f"data.path={corpus}",
        f"out={tmp_path / 'run'}",
    ]
    return subprocess.Popen([*command, *overrides], stderr=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_says_so_and_exits_with_128_and_its_number(
    tmp_path: Path, corpus: Path, number: int
) -> None:
    process = start(tmp_path, corpus, "train.steps=100000", "train.eval_every=null")
    log = tmp_path / "run/metrics.jsonl"
    wait_for(lambda: log.exists() and log.stat().st_size > 0)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number
    assert "saved at step" in said and "resume=" in said
    saved = checkpoint.find(tmp_path / "run")
    assert json.loads(log.read_text().splitlines()[-1])["step"] == checkpoint.step_of(saved)


def test_killing_it_at_any_moment_leaves_a_checkpoint_that_loads(tmp_path: Path, corpus: Path) -> None:
    for i in range(3):
        more = ["train.steps=100000", "train.save_every=1", "train.eval_every=null", "train.keep_best=false"]
        if i:
            more.append(f"resume={tmp_path / 'run'}")
        process = start(tmp_path, corpus, *more)
        first = checkpoint.steps(tmp_path / "run")[-1:]
        wait_for(lambda before=first: checkpoint.steps(tmp_path / "run")[-1:] != before)
        time.sleep(0.013 * i)
        process.kill()
        process.communicate()
        assert checkpoint.load(tmp_path / "run").step >= 1
    assert os.path.isdir(tmp_path / "run")


def test_a_run_does_not_go_on_in_the_folder_of_another(train: Train, tmp_path: Path) -> None:
    for name in ("a", "b"):
        train(f"out={tmp_path / name}", "train.steps=1")
    with pytest.raises(ConfigError, match="holds a run already"):
        train(f"resume={tmp_path / 'a'}", f"out={tmp_path / 'b'}", "train.steps=2", tiny=False)
