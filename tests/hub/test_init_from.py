"""A run that starts from a model folder: its choices, the user's, its weights, and its end."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from hub import parity
from omegaconf import OmegaConf

from tfcli import checkpoint, origin
from tfcli.cli.train import command
from tfcli.errors import ConfigError

transformers = pytest.importorskip("transformers")
QUICK = ["train.seq_len=16", "train.batch_size=4", "train.steps=4", "train.eval_every=null",
"train.log_every=1",
         "train.save_every=2", "device=cpu", "precision=fp32", "train.keep_last=9"]  # fmt: skip


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = transformers.LlamaConfig(
        vocab_size=parity.V, hidden_size=parity.D, num_hidden_layers=2, num_attention_heads=parity.H,
        num_key_value_heads=parity.K, intermediate_size=parity.FF, max_position_embeddings=parity.CONTEXT,
        attention_dropout=0.1,
    )  # fmt: skip
    theirs = parity.shaken(transformers.LlamaForCausalLM(config))
    return parity.folder_of(theirs, tmp_path_factory.mktemp("llama") / "model")


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    file = tmp_path / "text.txt"
    file.write_text("the quick brown fox jumps over the lazy dog " * 40)
    return ["data=text", f"data.path={file}", "data.sample_by=document", *QUICK]


def run(folder: Path, out: Path, *more: str) -> OmegaConf:
    command([f"init_from={folder}", f"out={out}", *more])
    return OmegaConf.load(out / "config.yaml")


def losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_the_run_has_all_of_the_folder(llama: Path, words: list[str], tmp_path: Path) -> None:
    config = run(llama, tmp_path / "run", *words, "optimizer.lr=1e-12", "size.dropout=0.0")
    there, here = origin.load(llama), checkpoint.load(tmp_path / "run")
    assert parity.same_nodes(here.config, there.config) == ["attention.dropout"]
    assert here.tokenizer.text == there.tokenizer.text and config.choices.objective == "causal_lm"
    for name, tensor in there.model.state_dict().items():
        assert torch.allclose(here.model.state_dict()[name], tensor, atol=1e-6), name


def test_a_run_goes_on_when_the_folder_is_gone(llama: Path, words: list[str], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(llama, tmp_path / "folder"))
    run(folder, tmp_path / "a", *words)
    shutil.rmtree(folder)
    command([f"resume={tmp_path / 'a/checkpoints/step-00000002'}", f"out={tmp_path / 'b'}"])
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        last = "checkpoints/step-00000004"
        assert (tmp_path / "a" / last / name).read_bytes() == (tmp_path / "b" / last / name).read_bytes()


@pytest.mark.parametrize(
    ("choice", "key", "value"),
    [
        ("ffn=reglu", "ffn.activation", "relu"),
        ("attention.kernel=eager", "attention.kernel", "eager"),
        ("size.dropout=0.3", "attention.dropout", 0.3),
        ("size.dropout=0.3", "placement.dropout", 0.3),
        ("head=tied", "head.tied", True),
        ("position=rope_linear", "position.factor", 2.0),
    ],
)
def test_a_choice_of_the_users_wins_over_the_folder(
    llama: Path, words: list[str], tmp_path: Path, choice: str, key: str, value: object
) -> None:
    config = run(llama, tmp_path / "run", *words, choice, "train.steps=1")
    assert OmegaConf.select(config, key) == value


def test_what_begins_afresh_is_said(
    llama: Path, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(llama, tmp_path / "run", *words, "ffn=reglu", "train.steps=1")
    assert "ffn=reglu: begins afresh, without ffn.activation=silu, ffn.bias=false" in capsys.readouterr().err


def test_pairs_that_lie_otherwise_are_laid_anew_and_the_model_is_the_same(
    llama: Path, words: list[str], tmp_path: Path
) -> None:
    run(llama, tmp_path / "a", *words, "size.dropout=0.0")
    run(llama, tmp_path / "b", *words, "size.dropout=0.0", "position.interleaved=true")
    assert losses(tmp_path / "b") == pytest.approx(losses(tmp_path / "a"), rel=1e-5)


@pytest.mark.parametrize(
    "choice",
    ["ffn=gelu", "position=learned", "size.n_layers=3", "norm=layernorm", "size.d_model=32", "preset=gpt2"],
)
def test_a_choice_that_the_weights_do_not_fit_is_named(
    llama: Path, words: list[str], tmp_path: Path, choice: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(choice)}: does not fit these weights"):
        run(llama, tmp_path / "run", *words, choice)
    assert not (tmp_path / "run").exists()


def test_another_tokenizer_is_refused(llama: Path, words: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="brings its own tokenizer"):
        run(llama, tmp_path / "run", *words, "tokenizer=byte")


def test_a_folder_is_no_run_to_resume(llama: Path) -> None:
    with pytest.raises(ConfigError, match="init_from=.* starts one from it"):
        command([f"resume={llama}"])


def test_an_encoder_gets_a_new_head_and_classifies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = transformers.BertConfig(
        vocab_size=parity.V, hidden_size=parity.D, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=parity.FF, max_position_embeddings=parity.CONTEXT,
    )  # fmt: skip
    folder = parity.folder_of(parity.shaken(transformers.BertForMaskedLM(config)), tmp_path / "bert")
    file = tmp_path / "texts.jsonl"
    rows = [{"text": "ab" * (1 + i % 5), "label": "long" if i % 5 > 2 else "short"} for i in range(40)]
    file.write_text("\n".join(map(json.dumps, rows)))
    run(folder, tmp_path / "run", "data=labelled", f"data.path={file}", *QUICK, "head=classification",
        "objective=classification")  # fmt: skip
    assert "head=classification: new, so it starts from chance" in capsys.readouterr().err
    loaded = checkpoint.load(tmp_path / "run")
    assert loaded.labels == ("long", "short")
    table = origin.load(folder).model.embedding.table.weight
    assert (loaded.model.embedding.table.weight - table).abs().max() < 0.01


def test_documents_begin_as_the_files_have_it(llama: Path, words: list[str], tmp_path: Path) -> None:
    assert run(llama, tmp_path / "a", *words, "train.steps=1").data.bos is False
    assert run(llama, tmp_path / "b", *words, "train.steps=1", "data.bos=true").data.bos is True
