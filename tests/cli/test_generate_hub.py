"""tf-generate with what a model folder says of how it writes, and with conversations."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from generated import objects, output, refused
from omegaconf import OmegaConf

from tfcli import build, checkpoint
from tfcli.cli.door import compose
from tfcli.cli.generate import main
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.trained import Char

LETTERS = "abcdefgh \n#|:"
SIZE = {"d_model": 16, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "d_ff": 32, "context": 64}
MODELS = {"decoder": ["position=learned"], "both": ["preset=t5", "objective=seq2seq", "data=copy"]}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}:{{ m.content }}|{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)
Say = Callable[..., None]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models that were never trained, but have opinions; the decoder's tokenizer has a chat template."""
    made = {}
    for name, words in MODELS.items():
        size = [f"size.{key}={value}" for key, value in SIZE.items()]
        config = OmegaConf.create(build.plain(compose("train", ["tokenizer=char", *words, *size])))
        plain = Char().train([LETTERS + "su"])
        tokenizer = Tokenizer(plain.backend, plain.special, chat_template=TEMPLATE)
        torch.manual_seed(0)
        model = build.model(config, tokenizer.vocab_size)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.5)
        made[name] = tmp_path_factory.mktemp("run") / name
        checkpoint.save(made[name], 1, model, tokenizer, config, {})
    return made


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Say:
    """Lets every model that is loaded come from a folder with such a generation_config.json."""
    load = checkpoint.load

    def says(**said: Any) -> None:
        monkeypatch.setattr(checkpoint, "load", lambda *given: load(*given)._replace(generation=said))

    return says


# --- generation_config.json -------------------------------------------------------------------------------


def test_a_folder_says_how_it_writes_where_the_user_does_not(
    runs: dict[str, Path], capsys: pytest.CaptureFixture, say: Say
) -> None:
    words = [runs["decoder"], "--prompt", "abc"]
    keys = [
        "max_length=9",
        "num_beams=3",
        "n_best=2",
        "early_stopping=false",
        "ends=[5]",
        "length_penalty=2.0",
    ]
    by_hand = objects(capsys, *words, *keys)
    free = objects(capsys, *words, "max_new_tokens=4")
    say(max_length=9, num_beams=3, num_return_sequences=2, eos_token_id=5, length_penalty=2.0)
    assert objects(capsys, *words) == by_hand and len(by_hand) == 2
    assert objects(capsys, *words, "generation_config=false", "max_new_tokens=4") == free
    assert objects(capsys, *words, "max_new_tokens=4", "num_beams=1", "ends=null") == free
    (best,) = objects(capsys, *words, "n_best=1", "length_penalty=0.5")  # rank the folder's beams
    assert best == objects(capsys, *words, *keys, "n_best=1", "length_penalty=0.5")[0]


def test_a_folder_that_draws_tells_the_seed(
    runs: dict[str, Path], capsys: pytest.CaptureFixture, say: Say
) -> None:
    words = [str(runs["decoder"]), "--prompt", "abc"]
    greedy = objects(capsys, *words, "max_length=30")
    say(do_sample=True, temperature=2.0, top_k=0, max_length=30)
    main([*words, "--json"])
    captured = capsys.readouterr()
    done = json.loads(captured.out)
    assert captured.err == f"seed={done['seed']}\n"
    assert objects(capsys, *words, captured.err.strip()) == [done]
    by_hand = ["sampler.temperature=2.0", "max_length=30", captured.err.strip(), "generation_config=false"]
    assert objects(capsys, *words, *by_hand) == [done]
    assert objects(capsys, *words, "sampler=greedy") == greedy


def test_an_encoder_decoder_begins_with_the_token_of_its_folder(
    runs: dict[str, Path], capsys: pytest.CaptureFixture, say: Say
) -> None:
    words, start = [runs["both"], "--source", "abc"], checkpoint.load(runs["both"]).objective.start_id
    by_hand = objects(capsys, *words, "max_length=6")
    say(decoder_start_token_id=start, max_length=6)
    assert objects(capsys, *words) == by_hand and len(by_hand[0]["ids"]) <= 5
    say(decoder_start_token_id=start + 1)
    err = refused(capsys, *words)
    assert "config.json: decoder_start_token_id=" in err and f"begin with token {start};" in err


def test_what_a_folder_asks_for_and_is_not_carried_out_is_refused_and_can_be_left_out(
    runs: dict[str, Path], capsys: pytest.CaptureFixture, say: Say
) -> None:
    words = [runs["decoder"], "--prompt", "abc", "max_new_tokens=3"]
    free = objects(capsys, *words)
    say(penalty_alpha=0.6, top_k=4)
    err = refused(capsys, *words)
    assert "config.json: penalty_alpha=0.6: is not carried out" in err
    assert "generation_config=false" in err
    assert objects(capsys, *words, "generation_config=false") == free


def test_where_folder_and_user_contradict_each_other_both_are_named(
    runs: dict[str, Path], capsys: pytest.CaptureFixture, say: Say
) -> None:
    say(num_beams=4)
    err = refused(capsys, runs["decoder"], "--prompt", "abc", "--stop", "x")
    assert "num_beams=4: stop" in err and "or set num_beams=1" in err
    assert "generation_config.json says num_beams=4 early_stopping=false" in err
    assert "set num_beams=1" in refused(capsys, runs["decoder"], "--prompt", "abc", "--stream")
    assert output(capsys, runs["decoder"], "--prompt", "abc", "--stream", "num_beams=1")


@pytest.mark.parametrize(
    "word, said", [("max_new_token=3", "max_new_tokens"), ("num_beams=x", "num_beams='x'")]
)
def test_a_mistyped_key_is_refused_before_anything_is_loaded(
    runs: dict[str, Path],
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    word: str,
    said: str,
) -> None:
    monkeypatch.setattr(checkpoint, "load", lambda *given: pytest.fail("loaded"))
    assert said in refused(capsys, runs["decoder"], "--prompt", "abc", word)


# --- conversations ----------------------------------------------------------------------------------------


def test_a_conversation_is_read_by_the_template_with_one_bos(
    runs: dict[str, Path], capsys: pytest.CaptureFixture
) -> None:
    where, keys = runs["decoder"], ["max_new_tokens=12"]
    (done,) = objects(capsys, where, "--system", "be", "--chat", "ab", "--chat", "c", "--chat", "d e", *keys)
    roles = [("system", "be"), ("user", "ab"), ("assistant", "c"), ("user", "d e")]
    assert done["messages"] == [{"role": role, "content": text} for role, text in roles]
    assert list(done) == ["messages", "text", "ids", "finish_reason"]
    (plain,) = objects(capsys, where, "--prompt", "s:be|u:ab|a:c|u:d e|a:", *keys)  # which BOS is put before
    assert (done["ids"], done["text"]) == (plain["ids"], plain["text"])
    (twice,) = objects(capsys, where, "--chat", "ab", *keys, "bos=true")
    assert twice == objects(capsys, where, "--chat", "ab", *keys, "bos=false")[0]


def test_a_reply_is_shown_without_what_was_asked(
    runs: dict[str, Path], capsys: pytest.CaptureFixture
) -> None:
    words = [runs["decoder"], "--chat", "ab", "max_new_tokens=5", "sampler=sample", "seed=1", "n_samples=2"]
    done = objects(capsys, *words)
    shown = "\n--------------------\n".join(d["text"] for d in done) + "\n"
    assert output(capsys, *words) == output(capsys, *words, "--stream") == shown
    assert [d["messages"] for d in done] == [[{"role": "user", "content": "ab"}]] * 2


def test_conversations_come_from_files_and_the_command_line(
    runs: dict[str, Path], capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, keys = tmp_path / "chats.jsonl", ["max_new_tokens=4"]
    talks = [
        [{"role": "user", "content": "ab"}],
        [{"role": "system", "content": "s"}, {"role": "user", "content": "c"}],
    ]
    file.write_text("".join(json.dumps({"messages": talk}) + "\n\n" for talk in talks), encoding="utf-8")
    done = objects(capsys, runs["decoder"], "--chat", "d", "--chat-file", file, *keys)
    assert [d["messages"] for d in done] == [[{"role": "user", "content": "d"}], *talks]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    assert objects(capsys, runs["decoder"], "--chat-file", "-", *keys) == done[1:]
    (one,) = objects(capsys, runs["decoder"], "--chat", "c", "--system", "s", *keys)
    assert one == done[2]


@pytest.mark.parametrize(
    "words, said",
    [
        (["--chat", "a", "--chat", "b"], "--chat: 2 messages.*the last must be the user's"),
        (["--chat-file", "no/such"], "--chat-file no/such: cannot be read"),
        (["--chat", "a", "--prompt-file", "x"], "--chat: goes with messages, and --prompt-file gives a text"),
        (["--chat"], "--chat: needs a value"),
        (["--chat", "h" * 70], "prompt of 76 tokens is too long: this model has 64 positions"),
    ],
)
def test_what_is_no_conversation_is_refused(
    runs: dict[str, Path], capsys: pytest.CaptureFixture, words: list[str], said: str
) -> None:
    assert re.search(said, refused(capsys, runs["decoder"], "max_new_tokens=2", *words))


@pytest.mark.parametrize(
    "line, said",
    [
        ('{"messages": []}', "line 1 must be"),
        ('{"messages": [{"role": "user"}]}', "line 1 must be"),
        ('{"messages": [{"role": "user", "content": 3}]}', "line 1 must be"),
        (
            '{"messages": [{"role": "assistant", "content": "a"}]}',
            "line 1 must be.*the last of them the user's",
        ),
        ('[{"role": "user", "content": "a"}]', "line 1 must be"),
        ("hello", "line 1 must be"),
    ],
)
def test_a_line_that_is_no_conversation_is_named(
    runs: dict[str, Path], capsys: pytest.CaptureFixture, tmp_path: Path, line: str, said: str
) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text(line, encoding="utf-8")
    assert re.search(f"chats.jsonl: {said}", refused(capsys, runs["decoder"], "--chat-file", file))


def test_two_system_messages_are_refused(
    runs: dict[str, Path], capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    file = tmp_path / "chats.jsonl"
    talk = [{"role": "system", "content": "s"}, {"role": "user", "content": "c"}]
    file.write_text(json.dumps({"messages": talk}), encoding="utf-8")
    err = refused(capsys, runs["decoder"], "--chat-file", file, "--system", "s")
    assert "--system: a conversation of --chat-file begins with" in err
    file.write_text("", encoding="utf-8")
    assert "no messages; give --chat TEXT or --chat-file FILE" in refused(
        capsys, runs["decoder"], "--chat-file", file
    )
