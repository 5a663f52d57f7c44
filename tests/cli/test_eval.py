"""tf-eval, from the words of the command line to what it prints."""

import io
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from tfcli import build, checkpoint
from tfcli.batch import Batch
from tfcli.cli.door import compose
from tfcli.cli.eval import main
from tfcli.data.corpus import prepare
from tfcli.evaluate import validation_loss
from tfcli.tokenizer.trained import Byte

SMALL = ["size.d_model=16", "size.n_layers=1", "size.n_heads=2", "size.n_kv_heads=2", "size.d_ff=32"]
TEXT = "To be, or not to be, that is the question: 日本 é\n" * 3


def make_run(folder, *overrides):
    """A run folder whose model was never trained, but has opinions."""
    words = ["tokenizer=byte", *SMALL, "size.context=16", "position=learned", *overrides]
    config = OmegaConf.create(build.plain(compose("train", words)))
    objective = build.make(config.objective, "objective")
    tokenizer = Byte(extra=objective.special).train()
    torch.manual_seed(0)
    model = build.model(config, tokenizer.vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)
    checkpoint.save(folder, 3, model, tokenizer, config, {})
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "lines.txt"
    path.write_text("".join(f"line {i} of {i * i}\n" for i in range(40)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory, corpus):
    words = ["data=text", f"data.path={corpus}", "data.sample_by=line", "size.dropout=0.3"]
    return make_run(tmp_path_factory.mktemp("run"), *words)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def results(capsys, *words) -> dict:
    main([str(word) for word in (*words, "--json")])
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


def by_hand(run, text: str, window: int, stride: int) -> tuple[float, float]:
    """Nats of a text and of its end, summed token by token in float64; the text as one document."""
    loaded = checkpoint.load(run)
    model, tokenizer = loaded.model, loaded.tokenizer
    ids = [tokenizer.bos_id, *tokenizer.encode(text), tokenizer.eos_id]
    nats = []
    for i in range(1, len(ids)):
        begin = next(b for b in range(0, len(ids), stride) if b + window > i)
        before = ids[begin - (stride == window and begin > 0) : i]
        with torch.no_grad():
            x = model(Batch(torch.tensor([before])))[0, -1].double().numpy()
        nats.append(np.log(np.exp(x - x.max()).sum()) + x.max() - x[ids[i]])
    return sum(nats), nats[-1]


@pytest.mark.parametrize(("window", "stride"), [(16, 16), (16, 5), (9, 1)])
def test_a_text_file_scores_what_float64_says(run, text, capsys, window, stride):
    found = results(capsys, run, "--text-file", text, f"window={window}", f"stride={stride}", "batch_size=3")
    nats, end = by_hand(run, TEXT, window, stride)
    n_bytes = len(TEXT.encode())
    assert found["tokens"] == n_bytes + 1  # the bytes and EOS, BOS never
    assert found["loss"] == pytest.approx(nats / (n_bytes + 1), rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(nats / (n_bytes + 1)), rel=1e-4)
    assert found["bits_per_byte"] == pytest.approx((nats - end) / math.log(2) / n_bytes, rel=1e-5)
    assert (found["bytes"], found["documents"]) == (n_bytes, 1)
    assert (found["window"], found["stride"]) == (window, stride)


def test_without_settings_the_window_is_what_the_run_was_trained_on_and_the_stride_the_window(
    run, text, capsys
):
    found = results(capsys, run, "--text-file", text)
    assert (found["window"], found["stride"]) == (16, 16)


def test_the_runs_own_validation_data_are_the_lines_it_held_out(run, corpus, capsys):
    lines = corpus.read_text().splitlines()
    found = results(capsys, run)
    parts = {part: results(capsys, run, f"part={part}") for part in ("train", "validation", "all")}
    assert found == parts["validation"] and found["part"] == "validation" and found["documents"] == 4
    assert parts["all"]["documents"] == 40 and parts["all"]["bytes"] == sum(map(len, lines))
    for name in ("documents", "tokens", "bytes"):
        assert parts["train"][name] + found[name] == parts["all"][name]
    assert found["tokens"] == found["bytes"] + 4  # an end each


def test_a_score_does_not_depend_on_the_batch_size_or_on_random_numbers(run, capsys):
    torch.manual_seed(1)
    first = results(capsys, run, "part=all", "batch_size=1")
    torch.manual_seed(2)
    for batch_size in (1, 7, 100):
        found = results(capsys, run, "part=all", f"batch_size={batch_size}")
        assert found.pop("part") == "all"
        assert found == pytest.approx({k: v for k, v in first.items() if k != "part"}, rel=1e-6)
    assert results(capsys, run, "part=all", "batch_size=1") == first


def test_other_data_can_be_named_as_for_training(run, text, capsys):
    found = results(capsys, run, "data=text", f"data.path={text}")
    assert found["part"] == "all" and found == results(capsys, run, "--text-file", text)
    held_out = results(
        capsys, run, "data=text", f"data.path={text}", "data.validation_fraction=0.5", "part=validation"
    )
    assert 0 < held_out["bytes"] < found["bytes"]


def test_other_data_have_the_ends_of_the_runs_own_unless_others_are_asked_for(tmp_path, text, capsys):
    run, words = (
        make_run(tmp_path / "run", "data.bos=false", "data.eos=false"),
        ("data=text", f"data.path={text}"),
    )
    n_bytes = len(TEXT.encode())
    assert results(capsys, run, *words)["tokens"] == n_bytes - 1
    assert results(capsys, run, *words, "data.bos=true")["tokens"] == n_bytes
    assert results(capsys, run, *words, "data.bos=true", "data.eos=true")["tokens"] == n_bytes + 1


def test_a_dash_reads_standard_input_and_line_ends_are_those_of_training(run, text, capsys, monkeypatch):
    data = b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert results(capsys, run, "--text-file", "-") == results(capsys, run, "--text-file", text)


def test_without_bos_in_the_runs_data_the_first_byte_is_given(tmp_path, text, capsys):
    run = make_run(tmp_path / "run", "data.bos=false", "data.eos=false")
    found = results(capsys, run, "--text-file", text)
    assert found["tokens"] == found["bytes"] == len(TEXT.encode()) - 1
    text.write_text("a")
    with pytest.raises(SystemExit) as stopped:
        main([str(run), "--text-file", str(text)])
    assert stopped.value.code == 2 and "0 tokens to score" in capsys.readouterr().err


def test_the_table_says_the_same_to_people(run, text, capsys):
    found = results(capsys, run, "--text-file", text)
    main([str(run), "--text-file", str(text)])
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["loss"].strip() == f"{found['loss']:.4f} nats per token"
    assert lines["bits per byte"].strip() == f"{found['bits_per_byte']:.4f}"
    assert lines["part"].strip() == "all"
    assert lines["tokens"].strip() == str(len(TEXT.encode()) + 1)


def test_a_perplexity_beyond_floats_is_said_in_strict_json(tmp_path, text, capsys):
    run = make_run(tmp_path / "run")
    loaded = checkpoint.load(run)
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.mul_(40)
    checkpoint.save(run, 4, loaded.model, loaded.tokenizer, loaded.config, {})
    found = results(capsys, run, "--text-file", text)
    assert found["perplexity"] == "Infinity" and float(found["perplexity"]) == math.inf
    assert 709 < found["loss"] < math.inf
    main([str(run), "--text-file", str(text)])
    assert "inf" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["window=17"], "window=17: this model reads at most 16 tokens at once"),
        (["window=8", "stride=9"], "stride=9: must be at most window=8"),
        (["window=0"], "tf-eval: window=0: must be a whole number at least 1"),
        (["batch_size=two"], "tf-eval: batch_size='two': must be a whole number"),
        (["part=test"], "part='test': must be one of validation, train, all"),
        (["widow=8"], "widow: no such key; did you mean 'window'?"),
        (["data=texts"], "data=texts: data has no such choice; did you mean 'text'?"),
        (["data.path=x"], "data.path=x: say which data as well, as in data=text data.path=x"),
        (["data=text", "data.path=no/such.txt"], "data.path=no/such.txt: no such file or folder"),
        (["precision=fp16", "device=cpu"], "precision=fp16: needs CUDA"),
        (["device=tpu"], "device=tpu: must be"),
        (["--text-file", "no/such.txt"], "no/such.txt: no such file"),
        (["--text-file"], "--text-file: needs a value"),
        (["--textfile", "x"], "--textfile: no such option"),
        (["--text-file", "x.txt", "data=stdlib"], "--text-file x.txt and data=stdlib: give one of them"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(run, words, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([str(run), *words])
    said = capsys.readouterr()
    assert stopped.value.code == 2 and message in said.err
    assert said.err.startswith("tf-eval: ") and said.err.count("\n") == 1 and said.out == ""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "there is no text in it, so 0 tokens to score"),
        (b" \n\n\t\r\n", "there is no text in it, so 0 tokens to score"),
        (b"good\nbad \xff\n", "line 2 is not UTF-8 text"),
    ],
)
def test_a_file_without_text_is_refused(run, tmp_path, data, message, capsys):
    (tmp_path / "text.txt").write_bytes(data)
    with pytest.raises(SystemExit) as stopped:
        main([str(run), "--text-file", str(tmp_path / "text.txt")])
    assert stopped.value.code == 2 and message in capsys.readouterr().err


# --- other families -----------------------------------------------------------------------------------------


ENCODER = ["family=encoder", "objective=masked_lm", "head=mlm"]
REVERSE = ["family=encoder_decoder", "objective=seq2seq", "data=reverse", "data.n_train=30",
           "data.n_validation=6", "data.length=4"]  # fmt: skip


@pytest.fixture(scope="module")
def masked(tmp_path_factory, corpus):
    words = ["data=text", f"data.path={corpus}", "data.sample_by=line", "data.packing=documents"]
    return make_run(tmp_path_factory.mktemp("masked"), *ENCODER, *words)


@pytest.fixture(scope="module")
def reversing(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("reversing"), *REVERSE)


def test_a_masked_language_model_is_scored_on_the_same_tokens_as_while_it_trains(masked, corpus, capsys):
    loaded = checkpoint.load(masked)
    source = build.make(loaded.config.data, "data")
    how = {"seq_len": loaded.objective.row(16), "shifted": False}
    blocks = prepare(source, loaded.tokenizer, **how).validation
    score = validation_loss(loaded.model, blocks, loaded.objective, batch_size=2, count_correct=True)
    first = results(capsys, masked)
    assert first["tokens"] == score.tokens and first["loss"] == pytest.approx(score.loss, rel=1e-6)
    assert first["accuracy"] == pytest.approx(score.accuracy)
    assert first["masked_perplexity"] == pytest.approx(score.perplexity, rel=1e-5)
    assert "perplexity" not in first
    other = results(capsys, masked, "batch_size=1")
    assert other.pop("part") == first.pop("part") == "validation"
    assert other == pytest.approx(first, rel=1e-6)


def test_the_pseudo_perplexity_of_a_text_is_what_float64_says(masked, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("twelve bytes")
    found = results(capsys, masked, "--text-file", tmp_path / "text.txt", "pseudo_perplexity=true")
    loaded = checkpoint.load(masked)
    model, tokenizer = loaded.model, loaded.tokenizer
    ids = [tokenizer.bos_id, *tokenizer.encode("twelve bytes"), tokenizer.eos_id]
    nats = []
    for i in range(1, len(ids) - 1):
        hidden = torch.tensor([[*ids[:i], tokenizer.mask_id, *ids[i + 1 :]]])
        with torch.no_grad():
            x = model(Batch(hidden))[0, i].double().numpy()
        nats.append(np.log(np.exp(x - x.max()).sum()) + x.max() - x[ids[i]])
    assert (found["pseudo_tokens"], found["pseudo_documents"], found["part"]) == (12, 1, "all")
    assert found["pseudo_loss"] == pytest.approx(np.mean(nats), rel=1e-5)
    assert found["pseudo_perplexity"] == pytest.approx(np.exp(np.mean(nats)), rel=1e-4)


def test_pairs_are_scored_by_their_targets_and_by_what_is_written(reversing, capsys):
    pytest.importorskip("sacrebleu")
    short = results(capsys, reversing)
    assert short["pairs"] == 6 and "bleu" not in short
    found = results(capsys, reversing, "decode=true", "max_new_tokens=6", "num_beams=2", "samples=3")
    assert {name: found[name] for name in short} == short
    assert [set(sample) for sample in found["samples"]] == [{"source", "reference", "hypothesis"}] * 3
    assert found["samples"][0]["source"][-2::-1] == found["samples"][0]["reference"]  # ab= is ba
    for name in ("bleu", "chrf", "exact_match"):
        low, high = found[f"{name}_ci"]
        assert low <= found[name] <= high
    assert (found["copy_chrf"] > 0 and found["constant"] in found["samples"][0]["reference"]) or found[
        "constant"
    ]
    main([str(reversing), "decode=true", "max_new_tokens=6"])
    out = capsys.readouterr().out
    for word in ("95 % between", "copy chrf", "bleu signature", "BLEU|nrefs:1", "hypothesis  "):
        assert word in out


def test_pairs_that_are_left_out_are_told(reversing, tmp_path, capsys):
    (tmp_path / "pairs.txt").write_text("ab\tba\n\tx\ncd\tdc\n")
    (tmp_path / "none.txt").write_text("\tx\n")
    words = [str(reversing), "data=pairs", f"data.path={tmp_path / 'pairs.txt'}", "--json"]
    main(words)
    out, err = capsys.readouterr()
    assert json.loads(out)["pairs"] == 2
    assert "pairs.txt: 1 of 3 records have a blank side and were left out" in err
    with pytest.raises(SystemExit):
        main([*words[:2], f"data.path={tmp_path / 'none.txt'}"])
    assert "none.txt: 1 of 1 records have a blank side" in capsys.readouterr().err


def test_a_decoder_writes_after_the_prompts_of_pairs(tmp_path, capsys):
    pytest.importorskip("sacrebleu")
    run = make_run(tmp_path / "run", *REVERSE[2:])
    found = results(capsys, run, "decode=true", "max_new_tokens=3", "max_documents=4")
    assert found["documents"] == 4 and len(found["samples"]) == 4 and found["stride"] == 16


@pytest.mark.parametrize(
    ("which", "words", "message"),
    [
        ("masked", ["stride=4"], "stride=4: has no say here"),
        ("masked", ["decode=true"], "decode=true: has no say here; it is for models that write, on pairs"),
        ("run", ["pseudo_perplexity=true"], "pseudo_perplexity=true: has no say here; it is for masked"),
        ("run", ["decode=true"], "decode=true: has no say here"),
        ("reversing", ["num_beams=2"], "num_beams=2: has no say here; it is for decode=true"),
        ("reversing", ["decode=true", "bleu_tokenizer=ja"], "bleu_tokenizer='ja': must be one of 13a, zh,"),
        (
            "reversing",
            ["data=stdlib"],
            "data=stdlib: gives text, and this model (objective=seq2seq)",
        ),
        ("reversing", ["--text-file", "TEXT"], "--text-file: this model is scored on what it says of a text"),
        ("reversing", ["window=17"], "window=17: this model reads at most 16 tokens at once"),
    ],
)
def test_what_does_not_fit_a_model_is_refused_in_one_line(which, words, message, request, text, capsys):
    words = [str(text) if word == "TEXT" else word for word in words]
    with pytest.raises(SystemExit) as stopped:
        main([str(request.getfixturevalue(which)), *words])
    said = capsys.readouterr()
    assert stopped.value.code == 2 and message in said.err and said.err.count("\n") == 1 and said.out == ""


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    for words in ([], [str(tmp_path)], [str(tmp_path / "none")]):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 2 and capsys.readouterr().err.startswith("tf-eval: ")


def test_an_interrupted_evaluation_ends_without_a_traceback(run, monkeypatch, capsys):
    def interrupted(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("tfcli.evaluate.score_documents", interrupted)
    with pytest.raises(SystemExit) as stopped:
        main([str(run)])
    assert stopped.value.code == 130 and capsys.readouterr().out == ""


def test_help_is_there_at_once_and_names_every_key():
    program = "import sys; from tfcli.cli.eval import main; main(['--help']); print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.endswith("False\n")
    for word in (
        "--text-file",
        "--json",
        "part=",
        "window=",
        "stride=",
        "batch_size=",
        "device=",
        "stdlib",
        "fp32",
    ):
        assert word in out
    assert "Hugging Face model folder" not in out
