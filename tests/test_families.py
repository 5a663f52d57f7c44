"""Every family and every kind of data, through the command: trains, stops, goes on exactly, is a start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TINY_RUN, metrics
from test_train import same_state

from tfcli import checkpoint
from tfcli.cli.train import command
from tfcli.errors import ConfigError

SMALL = [word for word in TINY_RUN if not word.startswith(("data", "tokenizer"))]
TREES = ["ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "lime", "maple", "oak", "pine", "poplar"]
Make = Callable[[Path], list[str]]


def text(folder: Path) -> list[str]:
    path = folder / "text.txt"
    path.write_text("\n".join(" ".join(TREES[i % 7 : i % 7 + 1 + i % 5]) + "." for i in range(60)))
    return ["data=text", f"data.path={path}", "data.sample_by=line", "tokenizer=byte"]


def pairs(folder: Path) -> list[str]:
    path = folder / "pairs.tsv"
    rows = [f"{tree}\t{tree[::-1][: 2 + i % 3]}" for i in range(3) for tree in TREES]
    path.write_text("source\ttarget\n" + "\n".join(rows))
    return ["data=pairs", f"data.path={path}", "tokenizer=byte", "size.context=24"]


def labelled(folder: Path) -> list[str]:
    path = folder / "labelled.jsonl"
    rows = [{"text": f"{tree} {i}", "label": "short" if len(tree) < 4 else "long"}
            for i in range(4) for tree in TREES]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    return ["data=labelled", f"data.path={path}", "tokenizer=byte"]


def tagged(folder: Path) -> list[str]:
    path = folder / "tagged.conll"
    words = [f"{tree}\tB-tree\n{i}\tO\n" for i in range(4) for tree in TREES]
    path.write_text("\n".join(words))
    return ["data=conll", f"data.path={path}", "tokenizer=byte"]


def questions(folder: Path) -> list[str]:
    path = folder / "squad.json"
    paragraphs = []
    for i, tree in enumerate(TREES):
        answers = [{"text": tree, "answer_start": 2}]
        asked = {"id": str(i), "question": "?", "answers": answers}
        paragraphs.append({"context": f"a {tree}", "qas": [asked]})
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": p["context"], "paragraphs": [p]}
                                                          for p in paragraphs]}))  # fmt: skip
    return ["data=squad", f"data.path={path}", "tokenizer=byte"]


RUNS: dict[str, tuple[list[str], Make]] = {
    "masked_lm": (["family=encoder", "head=mlm", "objective=masked_lm", "norm=batchnorm"], text),
    "span_corruption": (["preset=t5", "objective.n_sentinels=8"], text),
    "denoising": (["preset=bart"], text),
    "prefix_lm": (["objective=prefix_lm"], text),
    "seq2seq": (["preset=transformer2017", "train.batch_tokens=80"], pairs),
    "decoder of pairs": ([], pairs),
    "classification": (["preset=bert", "objective=classification", "head=classification"], labelled),
    "tagging": (["preset=modernbert", "objective=tagging", "head=tagging"], tagged),
    "reading": (["preset=bert", "objective=reading", "head=span"], questions),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_stopped_and_resumed_is_the_run_never_stopped(name: str, tmp_path: Path) -> None:
    choice, make = RUNS[name]
    own = [*SMALL, *choice, *make(tmp_path), "size.dropout=0.2", "train.save_every=2", "train.keep_last=9"]
    command([*own, f"out={tmp_path / 'a'}"])
    command([f"resume={tmp_path / 'a/checkpoints/step-00000002'}", f"out={tmp_path / 'b'}"])
    same_state(tmp_path / "a/checkpoints/step-00000006", tmp_path / "b/checkpoints/step-00000006")
    assert metrics(tmp_path / "a")[-1] == metrics(tmp_path / "b")[-1]
    loaded = checkpoint.load(tmp_path / "a")
    assert loaded.objective.family == loaded.model.family
    assert loaded.objective.says == loaded.model.head.says


def test_an_encoder_takes_all_but_its_head_from_a_masked_language_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    command([*SMALL, "preset=bert", *text(tmp_path), f"out={old}", "train.steps=2"])
    more = ["objective=classification", "head=classification", "train.steps=1", "optimizer.lr=1e-12"]
    quiet = [word for word in SMALL if not word.startswith(("size", "train.steps"))]
    data = [word for word in labelled(tmp_path) if not word.startswith("tokenizer")]
    command([*quiet, *data, *more, f"init_from={old}", f"out={new}"])
    said = capsys.readouterr().err
    assert "head=classification: new, so it starts from chance (head.dense.weight" in said
    assert "whose own head is left out (head.dense.bias, " in said
    before, after = (dict(checkpoint.load(folder).model.named_parameters()) for folder in (old, new))
    for name, tensor in before.items():
        if not name.startswith("head."):
            assert (tensor - after[name]).abs().max() < 1e-6, name
    assert checkpoint.load(new).labels == ("long", "short")
    # once more, and now the head is the same one
    command([*quiet, *data, *more, f"init_from={new}", f"out={tmp_path / 'newer'}"])
    assert "new, so it starts from chance" not in capsys.readouterr().err


WRONG = [
    (["family=encoder"], "objective=causal_lm: is not for family=encoder; choose objective=classif"),
    (["preset=bert", "objective=seq2seq"], "objective=seq2seq: is not for family=encoder"),
    (["preset=bert", "objective=tagging"], "gives those of tokens; choose head=tagging"),
    (["preset=transformer2017", "data=stdlib"], "needs pairs, and data=stdlib gives text; choose data="),
    (["preset=bert", "train.sample_every=1"], "train.sample_every=1: an encoder writes nothing"),
    (["preset=bart", "data.packing=documents"], "takes a row as one text; choose stream or none"),
    (["norm=batchnorm", "train.recompute=true"], "train.recompute=true: would count every batch twice"),
    (["objective=masked_lm"], "objective=masked_lm: is not for family=decoder"),
    (["preset=bert", "objective.rate=1e-9", "data.packing=stream"], "the objective scores no token of them"),
    (["attention@cross_attention=mqa"], "cross_attention: only family=encoder_decoder has one"),
    (["preset=t5", "attention@cross_attention=sliding"], "cross_attention.rule: a source is seen whole"),
    (["position=learned", "train.sample_every=1", f"train.sample_prompt='{'a' * 30}'"],
     "train.sample_prompt: a prompt of 31 tokens"),
    (["preset=transformer2017", "data=reverse", "data.score=all"], "data.score=all: objective="),
    (["preset=transformer2017", "data=reverse", "data.packing=stream"], "data.packing=stream: objective="),
    (["preset=bert", "objective.rate=0"], "objective.rate=0"),
    (["preset=bert", "objective.mask=0.8", "objective.random=0.3"], "objective"),
    (["preset=t5", "objective.n_sentinels=1", "objective.mean_span=1", "data.packing=stream"], "sentinels"),
    (["preset=t5", "objective.start=cls"], "objective.start='cls': must be one of bos, pad, eos"),
    (["preset=bert", "objective=classification", "head=classification", "train.loss_chunk=8",
      "data=labelled", "data.path=LABELLED"], "train.loss_chunk=8: is for scores of tokens"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), WRONG, ids=lambda value: str(value)[:60])
def test_what_does_not_fit_is_refused_in_one_line_before_anything_is_written(
    words: list[str], said: str, corpus: Path, tmp_path: Path
) -> None:
    data = [] if any(w.startswith("data=") for w in words) else [*TINY_RUN[:4], f"data.path={corpus}"]
    words = [word.replace("data.path=LABELLED", labelled(tmp_path)[1]) for word in words]
    with pytest.raises(ConfigError) as refusal:
        command([*SMALL, *data, *words, f"out={tmp_path / 'run'}"])
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "run").exists()


def test_a_causal_model_with_batch_statistics_says_what_leaks(
    train: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train("norm=batchnorm", "placement=pre_skip_first", "train.steps=1", f"out={tmp_path / 'a'}")
    assert "a token is told a little of those behind it" in " ".join(capsys.readouterr().err.split())
    train("norm=rmsnorm", "train.steps=1", f"out={tmp_path / 'b'}")
    assert "is told" not in capsys.readouterr().err


def test_evaluation_takes_the_plain_loss_and_training_the_smoothed_one(tmp_path: Path) -> None:
    losses = []
    for smoothing in (0.0, 0.3):
        out = tmp_path / str(smoothing)
        own = [*SMALL, "family=encoder_decoder", "objective=seq2seq", *pairs(tmp_path), "train.steps=1"]
        command([*own, f"objective.label_smoothing={smoothing}", "optimizer.lr=1e-12", f"out={out}"])
        losses.append({key: value for row in metrics(out) for key, value in row.items()})
    assert losses[0]["val_loss"] == pytest.approx(losses[1]["val_loss"], abs=1e-6)
    assert losses[0]["loss"] != pytest.approx(losses[1]["loss"], abs=1e-6)


@pytest.mark.parametrize("preset", ["t5", "bart"])
def test_a_budget_of_tokens_counts_what_is_read_and_what_is_written(preset: str, tmp_path: Path) -> None:
    from tfcli import assemble
    from tfcli.cli.door import compose

    own = [*SMALL, f"preset={preset}", *text(tmp_path), "data.packing=none", "train.batch_tokens=90"]
    own += ["objective.n_sentinels=8"] if preset == "t5" else []
    run = assemble.assemble(assemble.plan(compose("train", [*own, f"out={tmp_path / 'run'}"])))
    sizes = []
    for _ in range(12):
        batch = run.objective(run.corpus.train.draw(1))
        sizes.append(batch.inputs.numel() + batch.source.numel())
    assert 45 < max(sizes) <= 90
