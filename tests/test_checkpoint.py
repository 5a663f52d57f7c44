"""A checkpoint needs only its path, and cannot call what it likes (law 8)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tfcli import checkpoint
from tfcli.batch import Batch
from tfcli.errors import ConfigError


@pytest.fixture
def run(train: Callable[..., None], tmp_path: Path) -> Path:
    train(f"out={tmp_path / 'run'}", "train.steps=2", "train.save_every=1")
    return tmp_path / "run"


def rewrite(folder: Path, name: str, data: bytes) -> None:
    """Replaces a file and its size in the manifest, as somebody would who means harm."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = len(data)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_checkpoint_needs_only_its_path(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = tmp_path / "elsewhere with spaces, commas = signs"
    shutil.move(checkpoint.find(run), moved)
    (tmp_path / "trees.txt").unlink()
    monkeypatch.chdir("/")
    loaded = checkpoint.load(moved)
    assert loaded.step == 2
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("oak")) == "oak"
    assert torch.isfinite(loaded.model(Batch(torch.tensor([[1, 5, 6]])))).all()


def test_loading_twice_under_different_seeds_gives_the_same_weights(run: Path) -> None:
    seen = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        seen.append(checkpoint.load(run).model.state_dict())
    assert all(torch.equal(tensor, seen[1][name]) for name, tensor in seen[0].items())


@pytest.mark.parametrize(
    "target", ["os.system", "builtins.eval", "subprocess.run", "tfcli.build.make", "hydra.utils.call"]
)
@pytest.mark.parametrize("node", ["ffn", "attention", "tokenizer"])
def test_a_config_that_names_a_foreign_constructor_is_refused_before_it_is_imported(
    run: Path, tmp_path: Path, target: str, node: str
) -> None:
    folder = checkpoint.find(run)
    lines = (folder / "config.yaml").read_text().splitlines()
    at = lines.index(f"{node}:")
    lines[at + 1] = f"  _target_: {target}"
    lines.insert(at + 2, f"  command: touch {tmp_path / 'owned'}")
    rewrite(folder, "config.yaml", "\n".join(lines).encode())
    with pytest.raises(ConfigError, match=f"names {target}"):
        checkpoint.load(run)
    assert not (tmp_path / "owned").exists()


def test_a_pickle_in_the_training_state_is_not_run(run: Path, tmp_path: Path) -> None:
    import pickle

    class Harm:
        def __reduce__(self) -> tuple:
            return (Path.touch, (tmp_path / "owned",))

    folder = checkpoint.find(run)
    rewrite(folder, "training.pt", pickle.dumps(Harm()))
    with pytest.raises(ConfigError, match=r"training\.pt"):
        checkpoint.load_training(folder)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w.pop("stack.final_norm.gain"), "missing stack.final_norm.gain"),
        (lambda w: w.update(extra=torch.zeros(1)), "unexpected extra"),
        (lambda w: w.update({"stack.final_norm.gain": torch.zeros(3)}), r"stack.final_norm.gain is \(3,\)"),
    ],
)
def test_weights_of_another_model_are_refused_by_name(run: Path, change: Callable, words: str) -> None:
    folder = checkpoint.find(run)
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "other")
    rewrite(folder, "model.safetensors", (folder / "other").read_bytes())
    with pytest.raises(ConfigError, match=words):
        checkpoint.load(run)


def test_another_tokenizer_is_refused(run: Path) -> None:
    folder = checkpoint.find(run)
    spec = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = spec["model"]["vocab"]
    a, b = list(vocabulary)[-2:]
    vocabulary[a], vocabulary[b] = vocabulary[b], vocabulary[a]
    rewrite(folder, "tokenizer.json", json.dumps(spec).encode())
    with pytest.raises(ConfigError, match="not the tokenizer"):
        checkpoint.load(run)


def test_tied_weights_are_stored_once_and_loaded_as_one(run: Path) -> None:
    names = set(load_file(checkpoint.find(run) / "model.safetensors"))
    assert "embedding.table.weight" in names and "head.map.weight" not in names
    model = checkpoint.load(run).model
    assert model.head.map.weight is model.embedding.table.weight


@pytest.mark.parametrize("place", ["", "/nowhere", "tests"])
def test_a_folder_that_is_no_checkpoint_is_refused(place: str, tmp_path: Path) -> None:
    where = tmp_path if place in ("", "tests") else Path(place)
    with pytest.raises(ConfigError, match=str(where)):
        checkpoint.find(where)


def test_what_a_killed_process_left_half_made_is_never_taken_and_swept_away(run: Path) -> None:
    half = run / "checkpoints/.making-abc"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    assert checkpoint.find(run).name == "step-00000002"
    loaded = checkpoint.load(run)
    checkpoint.save(run, 3, loaded.model, loaded.tokenizer, loaded.config, {})
    assert not half.exists()
    assert checkpoint.find(run).name == "step-00000003"


def test_a_missing_file_is_named(run: Path) -> None:
    folder = checkpoint.find(run)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"tokenizer\.json is missing"):
        checkpoint.find(folder)


def test_damaged_checkpoints_do_not_count_as_kept_and_the_one_just_saved_stays(run: Path) -> None:
    loaded = checkpoint.load(run)
    for step in (3, 8, 9):
        checkpoint.save(run, step, loaded.model, loaded.tokenizer, loaded.config, {})
    for step in (8, 9):
        (checkpoint.folder_of(run, step) / "training.pt").unlink()
    checkpoint.keep(run, 1, best=None, saved=2)
    assert [checkpoint.step_of(folder) for folder in checkpoint.steps(run)] == [2, 3, 8, 9]


def test_a_checkpoint_that_a_run_removes_while_it_is_read_gives_way_to_a_newer_one(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, real = checkpoint.load(run), checkpoint.read_config

    def read_config(path: Path, folders: list) -> object:
        if path.parent.name == "step-00000002":
            checkpoint.save(run, 3, loaded.model, loaded.tokenizer, loaded.config, {})
            checkpoint.keep(run, 1, best=None, saved=3)
        return real(path, folders)

    monkeypatch.setattr(checkpoint, "read_config", read_config)
    assert checkpoint.load(run).step == 3
    with pytest.raises(ConfigError, match="step-00000002"):
        checkpoint.load(run / "checkpoints/step-00000002")


@pytest.mark.parametrize("key", ["step", "tokenizer_hash", "files"])
def test_a_manifest_that_lacks_a_key_is_named(run: Path, key: str) -> None:
    path = checkpoint.find(run) / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest[key]
    path.write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match=rf"step-00000002: damaged, manifest\.json has no {key}"):
        checkpoint.load(path.parent)
