"""Two texts in a row stand apart as the tokenizer's files have it: RoBERTa has two EOS between them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizer import published
from tokenizers import processors

from tfcli.data.records import encode_question, encode_text
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.files import read
from tfcli.tokenizer.trained import Bpe

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose tokenizer puts <s> a </s></s> b </s>."""
    folder = tmp_path_factory.mktemp("roberta")
    it = Bpe(vocab_size=400).train(["\n".join(published.LINES)])
    ids = {token: it.id_of(token) for token in ("<bos>", "<eos>")}
    it.backend.post_processor = processors.RobertaProcessing(
        ("<eos>", ids["<eos>"]), ("<bos>", ids["<bos>"]), add_prefix_space=False
    )
    it.backend.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "cls_token": "<bos>", "sep_token": "<eos>"}
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    return folder


def test_two_texts_of_robertas_have_two_ends_between_them(roberta: Path) -> None:
    it, theirs = read(roberta), transformers.AutoTokenizer.from_pretrained(roberta)
    assert it.parted == 2
    assert encode_text(it, "one", "two", 99)[0].tolist() == theirs("one", "two").input_ids
    (window,) = encode_question(it, "who came", "nobody did", 99)
    assert window.tokens.tolist() == theirs("who came", "nobody did").input_ids
    assert window.spans[-2].tolist()[1] == len("nobody did")


def test_rows_cut_short_keep_both(roberta: Path) -> None:
    it = read(roberta)
    row, segments = encode_text(it, "one " * 20, "two " * 20, 16)
    assert len(row) == 16 and row.tolist().count(it.eos_id) == 3 and segments[-1] == 1


@pytest.mark.parametrize("saved", [False, True])
def test_other_texts_have_one(saved: bool, tmp_path: Path) -> None:
    it = Bpe(vocab_size=400).train(["\n".join(published.LINES)])
    if saved:
        it.with_ends(True, True).save(tmp_path)
        it = Tokenizer.load(tmp_path)
    row = encode_text(it, "one", "two", 99)[0].tolist()
    assert it.parted == 1 and row.count(it.eos_id) == 2
