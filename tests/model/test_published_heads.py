"""Heads say what those of `transformers` say on the same weights, to 1e-4 in fp32."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from model.published import (
    BERT,
    DISTILBERT,
    MODERNBERT,
    SIZE,
    bert_body,
    cases,
    distilbert_body,
    filled,
    modernbert_body,
    ragged,
    shaken,
)
from torch import Tensor, nn

from tfcli.batch import Batch
from tfcli.errors import ConfigError
from tfcli.model.head import Vector

pytest.importorskip("transformers")

LABELS = "head.labels=[a,b,c]"
MODERN = ("head.activation=gelu", "head.dense_bias=false", "head.norm=true")
Names = dict[str, tuple[str, ...]]


def linear(own: str, their: str) -> Names:
    return {f"{own}.{kind}": (f"{their}.{kind}",) for kind in ("weight", "bias")}


def ours(preset: str, theirs: nn.Module, names: Names, head: str, *more: str) -> nn.Module:
    return filled(cases.model_of({"preset": preset, "head": head}, *SIZE, *more), theirs, names)


def agree(own: nn.Module, theirs: nn.Module) -> None:
    """On ragged rows; of a span both its scores."""
    tokens, mask, positions = ragged(2, 12, [12, 7])
    said = own(Batch(tokens, positions=positions))
    right = theirs(input_ids=tokens, attention_mask=mask)
    if own.head.says == "span":
        right = torch.stack((right.start_logits, right.end_logits), 1)
        said, right = (x.transpose(1, 2)[mask.bool()] for x in (said, right))
    else:
        right = right.logits
        said, right = (x[mask.bool()] if own.head.says == "tags" else x for x in (said, right))
    assert (said - right).abs().max() < 1e-4


@pytest.mark.parametrize("kind", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
@torch.no_grad()
def test_the_heads_of_bert_are_ours(kind: str) -> None:
    import transformers

    make = getattr(transformers, f"BertFor{kind}")
    theirs = shaken(make(transformers.BertConfig(**BERT, num_labels=2 if "Q" in kind else 3)))
    if kind == "SequenceClassification":
        names = linear("head.dense", "bert.pooler.dense") | linear("head.map", "classifier")
        agree(ours("bert", theirs, bert_body() | names, "classification", LABELS), theirs)
    elif kind == "TokenClassification":
        names = bert_body() | linear("head.map", "classifier")
        agree(ours("bert", theirs, names, "tagging", LABELS), theirs)
    else:
        names = bert_body() | linear("head.map", "qa_outputs")
        agree(ours("bert", theirs, names, "span", "head.bias=true"), theirs)


@pytest.mark.parametrize("kind", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
@torch.no_grad()
def test_the_heads_of_distilbert_are_ours(kind: str) -> None:
    import transformers

    make = getattr(transformers, f"DistilBertFor{kind}")
    theirs = shaken(make(transformers.DistilBertConfig(**DISTILBERT, num_labels=2 if "Q" in kind else 3)))
    names = distilbert_body()
    if kind == "SequenceClassification":
        names |= linear("head.dense", "pre_classifier") | linear("head.map", "classifier")
        own = ours("distilbert", theirs, names, "classification", LABELS, "head.activation=relu")
    elif kind == "TokenClassification":
        own = ours("distilbert", theirs, names | linear("head.map", "classifier"), "tagging", LABELS)
    else:
        names |= linear("head.map", "qa_outputs")
        own = ours("distilbert", theirs, names, "span", "head.bias=true")
    agree(own, theirs)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@torch.no_grad()
def test_modernberts_classes_are_ours(pooling: str) -> None:
    from transformers import ModernBertConfig, ModernBertForSequenceClassification

    config = ModernBertConfig(**MODERNBERT, num_labels=3, classifier_pooling=pooling)
    theirs = shaken(ModernBertForSequenceClassification(config))
    names = modernbert_body() | linear("head.map", "classifier")
    pool = {"cls": "first", "mean": "mean"}[pooling]
    agree(ours("modernbert", theirs, names, "classification", LABELS, f"head.pool={pool}", *MODERN), theirs)


@pytest.mark.parametrize(
    ("kind", "head"), [("TokenClassification", "tagging"), ("QuestionAnswering", "span")]
)
@torch.no_grad()
def test_modernberts_tags_and_answers_are_ours(kind: str, head: str) -> None:
    import transformers

    config = transformers.ModernBertConfig(**MODERNBERT, num_labels=3 if head == "tagging" else 2)
    theirs = shaken(getattr(transformers, f"ModernBertFor{kind}")(config))
    names = modernbert_body() | linear("head.map", "classifier")
    more = [LABELS] if head == "tagging" else ["head.bias=true"]
    agree(ours("modernbert", theirs, names, head, *more, *MODERN), theirs)


@torch.no_grad()
def test_berts_pooler_is_the_vector_of_the_first_token_through_a_dense_map() -> None:
    from transformers import BertConfig, BertModel

    theirs = shaken(BertModel(BertConfig(**BERT)))
    names = bert_body("") | linear("head.dense", "pooler.dense")
    own = ours("bert", theirs, names, "vector", "head.pool=first", "head.activation=tanh")
    tokens, mask, positions = ragged(2, 12, [12, 7])
    right = theirs(input_ids=tokens, attention_mask=mask).pooler_output
    assert (own(Batch(tokens, positions=positions)) - right).abs().max() < 1e-4


@pytest.mark.parametrize("pool", ["first", "mean", "max"])
@pytest.mark.parametrize("normalise", [False, True])
@torch.no_grad()
def test_vectors_are_pooled_over_tokens_and_not_over_padding(pool: str, normalise: bool) -> None:
    from transformers import BertConfig, BertModel

    theirs = shaken(BertModel(BertConfig(**BERT), add_pooling_layer=False))
    more = (f"head.pool={pool}", f"head.normalise={normalise}")
    own = ours("bert", theirs, bert_body(""), "vector", *more)
    tokens, mask, positions = ragged(2, 12, [12, 7])
    states = theirs(input_ids=tokens, attention_mask=mask).last_hidden_state
    rows = [row[: int(n)] for row, n in zip(states, mask.sum(-1))]
    by = {"first": lambda x: x[0], "mean": lambda x: x.mean(0), "max": lambda x: x.max(0).values}[pool]
    right = torch.stack([by(row) for row in rows])
    right = right / right.square().sum(-1, keepdim=True).sqrt() if normalise else right
    said = own(Batch(tokens, positions=positions))
    assert (said - right).abs().max() < 1e-4
    if normalise:
        assert torch.allclose(said.norm(dim=-1), torch.ones(2))
    # whole rows without a word of padding go another way
    assert torch.allclose(own(Batch(tokens[:1])), said[:1], atol=1e-5)


def pooled_row(pool: str, x: Tensor, positions: list[int]) -> Tensor:
    return Vector(2, pool=pool)(x, torch.tensor([positions]))


@pytest.mark.parametrize("pool", ["first", "mean", "max"])
def test_a_row_without_tokens_is_zero_and_hands_back_no_gradient(pool: str) -> None:
    x = torch.randn(1, 3, 2, requires_grad=True)
    said = F.normalize(pooled_row(pool, x, [-1, -1, -1]), dim=-1)
    said.sum().backward()
    assert torch.equal(said, torch.zeros(1, 2))
    assert torch.equal(x.grad, torch.zeros(1, 3, 2))


def test_the_highest_of_negative_features_is_negative() -> None:
    x = torch.tensor([[[-3.0, -1.0], [-2.0, -5.0], [9.0, 9.0]]])
    assert pooled_row("max", x, [0, 1, -1]).tolist() == [[-2.0, -1.0]]


@pytest.mark.parametrize("head", ["classification", "tagging", "span"])
@pytest.mark.parametrize(
    ("option", "said"), [("norm=true", "norm=true"), ("dense_bias=false", "dense_bias=false")]
)
def test_an_option_of_a_dense_map_that_is_not_there_is_refused(head: str, option: str, said: str) -> None:
    case = {"family": "encoder", "head": head}
    with pytest.raises(
        ConfigError, match=f"head.{said}: is of a dense map, and head.activation=null has none"
    ):
        cases.model_of(case, "head.activation=null", f"head.{option}")
    assert cases.model_of(case, "head.activation=gelu", f"head.{option}")


@pytest.mark.parametrize("head", ["classification", "tagging", "span"])
def test_a_norm_over_tokens_in_a_head_does_not_see_padding(head: str) -> None:
    more = ("head.activation=gelu", "head.norm=true")
    said = []
    for rows, width, content in ((3, 6, 0), (3, 9, 3), (4, 9, 3)):  # in the last, a row of padding alone
        model = cases.model_of({"family": "encoder", "head": head, "norm": "batchnorm"}, *more).train()
        tokens, positions = torch.full((rows, width), content), torch.full((rows, width), -1)
        tokens[:3, :6], positions[:3, :6] = cases.ids(3, 6), torch.arange(6)
        said.append(model(Batch(tokens, positions=positions))[:3])
    if head != "classification":
        said = [x[:, :6] if head == "tagging" else x[..., :6] for x in said]
    for other in said[1:]:
        assert torch.allclose(said[0], other, atol=1e-4)
