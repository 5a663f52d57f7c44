"""tf-generate with each kind of model: what it takes, what it prints, what it refuses."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from generated import objects, output, refused
from omegaconf import OmegaConf

from tfcli import build, checkpoint
from tfcli.cli.door import compose
from tfcli.tokenizer.trained import Char

LETTERS = "abcdefgh \n#日本!"
SHAPE = {"d_model": 16, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "d_ff": 32, "context": 64}
SIZE = [f"size.{key}={value}" for key, value in SHAPE.items()]
MODELS = {
    "decoder": [],
    "prefix": ["objective=prefix_lm"],
    "both": ["preset=t5", "objective=seq2seq", "data=copy"],
    "masked": ["preset=bert"],
    "classifier": ["preset=bert", "head=classification", "objective=classification"],
    "tagger": ["preset=bert", "head=tagging", "objective=tagging"],
    "reader": ["preset=bert", "head=span", "objective=reading"],
    "vectors": ["preset=bert", "head=vector"],
}
LABELS = {"classifier": ["art", "sport", "war"], "tagger": ["O", "B-x", "I-x"]}
Make = Callable[[str], Path]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Run folders of models that were never trained, but have opinions."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("run") / name
            save(name, made[name])
        return made[name]

    return make


def save(name: str, folder: Path) -> None:
    config = OmegaConf.create(build.plain(compose("train", ["tokenizer=char", *MODELS[name], *SIZE])))
    if name in LABELS:
        config.head.labels = LABELS[name]
    tokenizer = Char(extra=("<mask>",)).train([LETTERS])
    torch.manual_seed(0)
    model = build.model(config, tokenizer.vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    checkpoint.save(folder, 1, model, tokenizer, config, {})


def standard_input(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


# --- writing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["decoder", "prefix"])
def test_a_decoder_searches_with_beams(run: Make, capsys: pytest.CaptureFixture, name: str) -> None:
    keys = ["num_beams=4", "n_best=2", "max_new_tokens=6", "length_norm=gnmt", "length_penalty=0.6"]
    done = objects(capsys, run(name), "--prompt", "abc", "--prompt", "d", *keys)
    assert [d["prompt"] for d in done] == ["abc", "abc", "d", "d"]
    assert all(list(d) == ["prompt", "text", "ids", "finish_reason", "score"] for d in done)
    assert done[0]["score"] > done[1]["score"] and done[2]["score"] > done[3]["score"]
    whole = objects(capsys, run(name), "--prompt", "abc", "--prompt", "d", *keys, "cache=false")
    assert [d["ids"] for d in done] == [d["ids"] for d in whole]
    assert [d["score"] for d in done] == pytest.approx([d["score"] for d in whole], abs=1e-4)
    text = output(capsys, run(name), "--prompt", "abc", "--prompt", "d", *keys)
    assert text == "\n--------------------\n".join(d["prompt"] + d["text"] for d in done) + "\n"


def test_a_prefix_is_read_as_one(run: Make, capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    words = ["--prompt", "abcdefg hah", "max_new_tokens=20", "ignore_eos=true"]
    loaded = checkpoint.load(run("prefix"))
    loaded.config.objective = build.plain(compose("train", []).objective)
    checkpoint.save(tmp_path, 1, loaded.model, loaded.tokenizer, loaded.config, {})
    assert objects(capsys, run("prefix"), *words) != objects(capsys, tmp_path, *words)


def test_constraints_are_keys(run: Make, capsys: pytest.CaptureFixture) -> None:
    keys = [
        "forced_start=c",
        "forced_end='<eos>'",
        "suppress=[a,4]",
        "no_repeat_ngram_size=1",
        "min_new_tokens=3",
    ]
    for beams in ("num_beams=1", "num_beams=3"):
        (done,) = objects(capsys, run("decoder"), "--prompt", "h", "max_new_tokens=5", beams, *keys)
        assert done["text"][0] == "c" and len(done["ids"]) >= 4 and done["finish_reason"] == "eos"
        assert not set(done["text"]) & set("ah") and len(set(done["ids"])) == len(done["ids"])


def test_an_encoder_decoder_writes_a_line_for_each_source(
    run: Make, capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, where = tmp_path / "sources.txt", run("both")
    file.write_text("abc\n\nde\n", encoding="utf-8")
    keys = ["max_new_tokens=4", "suppress=['\\n']"]
    done = objects(capsys, where, "--source-file", file, "max_new_tokens=4")
    assert [d["source"] for d in done] == ["abc", "", "de"]
    assert all(list(d) == ["source", "text", "ids", "finish_reason"] for d in done)
    assert output(capsys, where, "--source-file", file, "max_new_tokens=4") == "".join(
        d["text"] + "\n" for d in done
    )
    assert output(capsys, where, "--source=abc", *keys[:1], "--stream") == done[0]["text"] + "\n"
    standard_input(monkeypatch, '{"source": "abc"}\n{"source": ""}\n{"source": "de"}\n')
    assert objects(capsys, where, "max_new_tokens=4") == done
    best = objects(capsys, where, "--source=abc", "num_beams=3", "n_best=3", "max_new_tokens=4")
    assert [d["source"] for d in best] == ["abc"] * 3 and best[0]["score"] > best[2]["score"]
    samples = objects(capsys, where, "--source=abc", "sampler=sample", "seed=3", "n_samples=2")
    assert [d["seed"] for d in samples] == [3, 3]


def test_sources_have_the_ends_of_the_runs_own(
    run: Make, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    words = ["--source", "abc", "max_new_tokens=20"]
    with_eos, without = (objects(capsys, run("both"), *words, f"eos={eos}") for eos in ("true", "false"))
    assert with_eos != without and objects(capsys, run("both"), *words) == with_eos
    loaded = checkpoint.load(run("both"))
    loaded.config.data.eos = False
    checkpoint.save(tmp_path, 1, loaded.model, loaded.tokenizer, loaded.config, {})
    assert objects(capsys, tmp_path, *words) == without


def saved_as(run: Make, folder: Path, group: str, choice: str, **data: str) -> Path:
    """The encoder-decoder, as if it had been trained with another objective or data."""
    loaded = checkpoint.load(run("both"))
    config = OmegaConf.create(build.plain(compose("train", [f"{group}={choice}"])))
    for key, value in data.items():
        config.data[key] = value
    merged = OmegaConf.create(build.plain(loaded.config))
    merged[group] = config[group]
    checkpoint.save(folder, 1, loaded.model, loaded.tokenizer, merged, {})
    return folder


@pytest.mark.parametrize("separator, added", [(" #", True), ("", False)])
def test_sources_end_with_the_separator_of_pairs(
    run: Make, capsys: pytest.CaptureFixture, tmp_path: Path, separator: str, added: bool
) -> None:
    where = saved_as(run, tmp_path, "data", "pairs", path="x.tsv", separator=separator)
    words = ["max_new_tokens=20", "bos=true"]
    done = objects(capsys, where, "--source", "abc", "--source", "abc #", *words)
    assert [d["source"] for d in done] == ["abc #" if added else "abc", "abc #"]
    assert (done[0]["ids"] == done[1]["ids"]) == added
    (task,) = objects(capsys, run("both"), "--source", "abc", *words)
    assert task["source"] == "abc"


def test_a_denoising_model_takes_masks_in_its_sources(
    run: Make, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    where = saved_as(run, tmp_path, "objective", "denoising")
    words = ["--source", "ab[MASK]d", "--source", "ab<mask>d", "num_beams=2", "max_new_tokens=5"]
    done = objects(capsys, where, *words)
    assert [d["source"] for d in done] == ["ab[MASK]d", "ab<mask>d"]
    assert done[0]["score"] == pytest.approx(done[1]["score"], abs=1e-5)
    text = objects(capsys, run("both"), *words)
    assert text[0]["score"] != pytest.approx(text[1]["score"], abs=1e-5)  # to a model of pairs they are text


# --- saying something ---------------------------------------------------------------------------------------


def test_a_masked_language_model_fills_its_masks(
    run: Make, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [run("masked"), "--text", "a[MASK]c [MASK]", "--text", "<mask>", "top_n=3"]
    done = objects(capsys, *words)
    assert [d["text"] for d in done] == ["a[MASK]c [MASK]", "<mask>"]
    assert [len(d["slots"]) for d in done] == [2, 1]
    for one in done:
        tops = [slot["candidates"] for slot in one["slots"]]
        assert all(len(top) == 3 and list(top[0]) == ["token", "id", "probability"] for top in tops)
        assert all(top[0]["probability"] >= top[2]["probability"] > 0 for top in tops)
    text = output(capsys, *words)
    assert done[0]["filled"] in text and f"{done[0]['slots'][0]['candidates'][0]['probability']:.4f}" in text
    standard_input(monkeypatch, "[MASK]b\nc[MASK]\n")
    piped = objects(capsys, run("masked"))
    assert [len(d["slots"][0]["candidates"]) for d in piped] == [5, 5]
    assert objects(capsys, run("masked"), "--text=[MASK]b", "--text=c[MASK]", "batch_size=1") == piped


def test_a_classifier_says_its_classes(run: Make, capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "abc"}\n{"text": "abc", "second": "d"}\n"h"\n', encoding="utf-8")
    done = objects(capsys, run("classifier"), "--text-file", file)
    assert list(done[0]) == ["text", "label", "probability", "probabilities"]
    assert all(set(d["probabilities"]) == {"art", "sport", "war"} for d in done)
    assert all(d["probability"] == max(d["probabilities"].values()) for d in done)
    assert done[1]["second"] == "d" and done[0]["probabilities"] != done[1]["probabilities"]
    words = [run("classifier"), "--text", "abc", "--second", "d"]
    assert objects(capsys, *words)[0]["probabilities"] == pytest.approx(done[1]["probabilities"], abs=1e-5)
    assert output(capsys, *words).startswith(done[1]["label"] + "  (" + done[1]["label"])


def test_a_tagger_tags_words(run: Make, capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text('["ab", "c", "de f"]\n{"words": ["a"]}\n{"text": "a  b"}\n', encoding="utf-8")
    done = objects(capsys, run("tagger"), "--text-file", file)
    assert [d["words"] for d in done] == [["ab", "c", "de f"], ["a"], ["a", "b"]]
    assert all(len(d["tags"]) == len(d["words"]) == len(d["scores"]) for d in done)
    assert all(list(e) == ["kind", "text", "first", "last", "score"] for d in done for e in d["entities"])
    text = output(capsys, run("tagger"), "--text", "a  b")
    assert [line.split("\t")[:2] for line in text.splitlines()[:2]] == [
        list(p) for p in zip("ab", done[2]["tags"])
    ]


def test_a_reader_finds_answers(run: Make, capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    context = "abc def gh 日本! " * 20
    (tmp_path / "context.txt").write_text(context, encoding="utf-8")
    asked = ["--question", "ab", "--question", "h"]
    done = objects(capsys, run("reader"), *asked, "--context", context)
    assert [d["question"] for d in done] == ["ab", "h"]
    for one in done:
        assert list(one) == ["question", "answer", "start", "end", "score"] and 0 < one["score"] <= 1
        assert one["answer"] == context[one["start"] : one["end"]] and one["answer"]
    assert objects(capsys, run("reader"), *asked, "--context-file", tmp_path / "context.txt") == done
    lines = (json.dumps({"question": q, "context": context}) for q in ("ab", "h"))
    (tmp_path / "q.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert objects(capsys, run("reader"), "--text-file", tmp_path / "q.jsonl") == done
    text = output(capsys, run("reader"), "--question", "ab", "--context", "abc")
    assert text.endswith(")\n") and "probability" in text


def test_a_model_of_vectors_gives_them_or_says_how_near_they_are(
    run: Make, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    texts = ["abc", "a much longer text than that #", "日本!"]
    words = [word for text in texts for word in ("--text", text)]
    done = objects(capsys, run("vectors"), *words)
    assert [d["text"] for d in done] == texts and all(list(d) == ["text", "vector"] for d in done)
    assert all(len(d["vector"]) == SHAPE["d_model"] for d in done)
    for text, one in zip(texts, done):  # alone as in company
        (alone,) = objects(capsys, run("vectors"), "--text", text, "batch_size=1")
        assert alone["vector"] == pytest.approx(one["vector"], abs=1e-5)
    a, b, _ = (torch.tensor(d["vector"]) for d in done)
    near = torch.cosine_similarity(a, b, dim=0).item()
    lines = output(capsys, run("vectors"), *words).splitlines()
    assert lines[0].split() == ["1", "2", "3"]
    assert lines[1].split() == ["1", "1.0000", f"{near:.4f}", lines[1].split()[3], "abc"]
    assert lines[2].split()[1:3] == [f"{near:.4f}", "1.0000"]
    (line,) = output(capsys, run("vectors"), "--text", "abc").splitlines()
    assert line.startswith(f"{a[0]:.4f} {a[1]:.4f} ") and f"16 numbers, length {a.norm():.4f}" in line


def test_data_say_whether_special_tokens_stand_around_what_an_encoder_reads(
    run: Make, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    given = {"vectors": ["--text=abc"], "classifier": ["--text=abc"], "tagger": ["--text=abc"],
             "masked": ["--text=a[MASK]"], "reader": ["--question=ab", "--context=abc def"]}  # fmt: skip
    for name, words in given.items():
        found = [objects(capsys, run(name), *words)]
        for bos, eos in ((True, False), (False, True), (False, False)):
            loaded = checkpoint.load(run(name))
            loaded.config.data.bos, loaded.config.data.eos = bos, eos
            folder = tmp_path / f"{name}-{bos}-{eos}"
            checkpoint.save(folder, 1, loaded.model, loaded.tokenizer, loaded.config, {})
            found.append(objects(capsys, folder, *words))
        assert all(found.count(one) == 1 for one in found), name


# --- what does not fit --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, words, said",
    [
        ("classifier", ["--prompt", "a"], "--prompt: this model is a classifier; give --text TEXT"),
        (
            "masked",
            ["--prompt-file", "x"],
            "--prompt-file: this model is a masked language model; give --text",
        ),
        ("masked", ["--text=[MASK]", "--second=a"], "--second: this model is a masked language model"),
        ("decoder", ["--source", "a"], "--source: this model is a decoder; give --prompt TEXT"),
        ("decoder", ["--text", "a"], "--text: this model is a decoder; give --prompt TEXT"),
        ("both", ["--prompt", "a"], "--prompt: this model is an encoder-decoder; give --source TEXT"),
        (
            "reader",
            ["--text", "a"],
            "--text: this model is a reader; give --question TEXT and --context TEXT",
        ),
        ("tagger", ["--question", "a"], "--question: this model is a tagger; give --text TEXT"),
        ("tagger", ["--text", "a", "--stream"], "--stream: this model is a tagger"),
        ("classifier", ["--text", "a", "--stop", "b"], "--stop: this model is a classifier"),
        ("classifier", ["--text", "a", "num_beams=2"], "num_beams=2: has no say with a classifier"),
        ("classifier", ["--text", "a", "sampler.top_k=2"], "sampler.top_k=2: has no say with a classifier"),
        ("tagger", ["--text", "a", "top_n=2"], "top_n=2: has no say with a tagger; batch_size, device have"),
        ("decoder", ["--prompt", "a", "top_n=2"], "top_n=2: has no say with a decoder"),
        ("vectors", ["--prompt", "a"], "--prompt: this model is a model of vectors; give --text TEXT"),
        ("vectors", ["--text", "a", "top_n=2"], "top_n=2: has no say with a model of vectors"),
        ("vectors", ["--text", "a" * 70], "text 1 has 72 tokens"),
        ("both", ["--chat", "a"], "--chat: this model is an encoder-decoder; give --source TEXT"),
        ("masked", ["--system", "a"], "--system: this model is a masked language model"),
        (
            "decoder",
            ["--prompt", "a", "--chat", "a"],
            "--chat: goes with messages, and --prompt gives a text",
        ),
        (
            "decoder",
            ["--system", "", "--prompt-file", "a"],
            "--system: goes with messages, and --prompt-file",
        ),
        ("decoder", ["--chat", "a"], "chat template"),
        (
            "masked",
            ["--text", "[MASK]", "generation_config=false"],
            "generation_config=false: has no say with",
        ),
        ("decoder", ["--prompt", "a", "generation_config=maybe"], "generation_config='maybe': must be true"),
        ("decoder", ["--prompt", "a", "ends=[zz]"], "ends='zz': must be one token"),
        ("decoder", ["--prompt", "a", "early_stopping=soon"], "early_stopping='soon': must be true or false"),
        ("masked", ["--text", "abc"], "text 1 has no [MASK]"),
        ("masked", ["--text", "[MASK]" + "a" * 70], "text 1 has 73 tokens"),
        ("masked", ["--text", "[MASK]", "top_n=0"], "top_n=0"),
        ("classifier", ["--text", "a" * 70], "text 1 has 72 tokens"),
        ("classifier", ["--text", "a", "--second", "b", "--second", "c"], "1 texts and 2 --second"),
        ("tagger", ["--text", " "], "text 1 has no words"),
        ("reader", ["--question", "a"], "--context: missing"),
        ("reader", ["--context", "a"], "--question: missing"),
        ("reader", ["--question", "a", "--context", " "], "context 1 has no text"),
        ("reader", ["--question=a"] * 3 + ["--context=a"] * 2, "3 questions and 2 contexts"),
        ("reader", ["--question", "a" * 70, "--context", "b"], "question 1: the question has 70 tokens"),
        ("both", ["--source", "a", "max_new_tokens=2", "min_new_tokens=3"], "min_new_tokens=3"),
        ("decoder", ["--prompt", "a", "num_beams=2", "--stream"], "--stream: with num_beams=2"),
        ("decoder", ["--prompt", "a", "num_beams=2", "sampler=sample"], "num_beams=2: beams are not drawn"),
        ("decoder", ["--prompt", "a", "num_beams=0"], "num_beams=0"),
        ("decoder", ["--prompt", "a", "length_norm=wu"], "length_norm"),
        ("decoder", ["--prompt", "a", "forced_start=zz"], "forced_start='zz'"),
    ],
)
def test_what_does_not_fit_is_one_line_that_names_what_does(
    run: Make, capsys: pytest.CaptureFixture, name: str, words: list[str], said: str
) -> None:
    assert said in refused(capsys, run(name), *words)


@pytest.mark.parametrize("name, said", [("both", "no source; give --source TEXT"), ("reader", "no question")])
def test_nothing_to_read_is_a_mistake(
    run: Make, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    standard_input(monkeypatch, "")
    assert said in refused(capsys, run(name))


def test_a_line_that_is_no_question_is_named(
    run: Make, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    standard_input(monkeypatch, '{"question": "a", "context": "b"}\n{"question": "a"}\n')
    assert 'standard input: line 2 must be {"question": "text", "context": "text"}' in refused(
        capsys, run("reader")
    )
