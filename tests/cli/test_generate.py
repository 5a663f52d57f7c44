"""tf-generate, from the words of the command line to what it prints."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from generated import objects, output
from omegaconf import OmegaConf

from tfcli import build, checkpoint
from tfcli.cli.door import compose
from tfcli.cli.generate import main
from tfcli.cli.prompts import PROMPT, read
from tfcli.errors import ConfigError
from tfcli.tokenizer.trained import Char

SIZE = {"d_model": 16, "n_layers": 1, "n_heads": 2, "n_kv_heads": 2, "d_ff": 32}
LETTERS = "abcdefgh \n#日本"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder whose model was never trained, but has opinions."""
    folder = tmp_path_factory.mktemp("run, a=b") / "#1 (x)"  # a name that no grammar must see
    words = ["tokenizer=char", *(f"size.{key}={value}" for key, value in SIZE.items())]
    config = OmegaConf.create(build.plain(compose("train", words)))
    tokenizer = Char().train([LETTERS])
    torch.manual_seed(0)
    model = build.model(config, tokenizer.vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    checkpoint.save(folder, 3, model, tokenizer, config, {})
    return folder


def standard_input(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_completions_come_in_the_order_of_the_prompts(run: Path, capsys: pytest.CaptureFixture) -> None:
    keys = ("n_samples=2", "batch_size=3", "max_new_tokens=5", "ignore_eos=true")
    done = objects(capsys, run, "--prompt", "abc", *keys, "--prompt", "")
    assert [d["prompt"] for d in done] == ["abc", "abc", "", ""]
    assert all(list(d) == ["prompt", "text", "ids", "finish_reason"] for d in done)  # no draws, no seed
    assert all(d["finish_reason"] == "length" and len(d["ids"]) == 5 for d in done)


FREE = ["a 'b', \"c\" ${x} d=e #f [g] {h} \\n", "日本", "--prompt", "-a", "~a", "two\nlines", "a=b", "\udcff"]


@pytest.mark.parametrize("text", FREE)
def test_a_prompt_is_taken_as_it_stands(run: Path, capsys: pytest.CaptureFixture, text: str) -> None:
    (done,) = objects(capsys, run, "--prompt", text, "max_new_tokens=2")
    assert done["prompt"] == text.replace("\udcff", "\ufffd")
    assert objects(capsys, run, f"--prompt={text}", "max_new_tokens=2") == [done]


def test_text_is_the_prompt_and_what_follows(run: Path, capsys: pytest.CaptureFixture) -> None:
    keys = ["max_new_tokens=20", "seed=1", "sampler=sample", "n_samples=2"]
    words = [run, "--prompt", "abc", "--prompt", "日", *keys]
    done = objects(capsys, *words)
    expected = "\n--------------------\n".join(d["prompt"] + d["text"] for d in done) + "\n"
    assert output(capsys, *words) == output(capsys, *words, "--stream") == expected
    assert objects(capsys, *words, "--stream") == done


def test_a_temperature_is_enough_to_draw(run: Path, capsys: pytest.CaptureFixture) -> None:
    words = [str(run), "--prompt", "abc", "max_new_tokens=20", "sampler.temperature=2", "--json"]
    main(words)
    captured = capsys.readouterr()
    done = json.loads(captured.out)
    assert captured.err == f"seed={done['seed']}\n"
    assert objects(capsys, *words, captured.err.strip()) == [done]
    assert objects(capsys, *words, f"seed={done['seed'] + 1}") != [done]


@pytest.mark.parametrize("choice", ["greedy", "sample", "temperature", "top_k", "top_p", "min_p"])
def test_every_sampler_writes(run: Path, capsys: pytest.CaptureFixture, choice: str) -> None:
    (done,) = objects(capsys, run, "--prompt", "abc", f"sampler={choice}", "seed=1")
    assert done["text"] and ("seed" in done) == (choice != "greedy")
    greedy = objects(capsys, run, "--prompt", "abc", f"sampler={choice}", "sampler.temperature=0")
    assert greedy == objects(capsys, run, "--prompt", "abc")


def test_a_stop_string_is_a_key_or_an_option(run: Path, capsys: pytest.CaptureFixture) -> None:
    keys = ["sampler.temperature=1.5", "seed=4", "max_new_tokens=60", "ignore_eos=true"]
    words = [run, "--prompt", "abc", *keys]
    (whole,) = objects(capsys, *words)
    assert "\n" in whole["text"]
    cut = whole["text"][: whole["text"].index("\n")]
    for stop in (['stop=["\\n"]'], ["stop='\\n'"], ["--stop", "\n"], ['stop=["zzz"]', "--stop", "\n"]):
        (done,) = objects(capsys, *words, *stop)
        assert (done["text"], done["finish_reason"]) == (cut, "stop")


def test_prompts_begin_with_bos_as_the_texts_in_training_did(
    run: Path, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    words = ["--prompt", "abc", "max_new_tokens=20"]
    with_bos, without = (objects(capsys, run, *words, f"bos={bos}") for bos in ("true", "false"))
    assert with_bos != without
    assert objects(capsys, run, *words) == with_bos
    loaded = checkpoint.load(run)
    loaded.config.data.bos = False
    checkpoint.save(tmp_path, 1, loaded.model, loaded.tokenizer, loaded.config, {})
    assert objects(capsys, tmp_path, *words) == without


def test_prompts_come_from_files_and_from_standard_input(
    run: Path, capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("abc\n\nde\n", encoding="utf-8")
    from_file = objects(capsys, run, "--prompt-file", file, "max_new_tokens=3")
    assert [d["prompt"] for d in from_file] == ["abc", "", "de"]
    for words in ([], ["--prompt-file", "-"]):
        standard_input(monkeypatch, file.read_bytes())
        assert objects(capsys, run, *words, "max_new_tokens=3") == from_file
    both = objects(capsys, run, "--prompt", "h", "--prompt-file", file, "max_new_tokens=3")
    assert [d["prompt"] for d in both] == ["h", "abc", "", "de"]


@pytest.mark.parametrize(
    "name, data, prompts",
    [
        ("a.txt", b"\xef\xbb\xbfone\r\ntwo\x0cmore\n", ["one", "two\x0cmore"]),
        ("a.txt", b"\n", [""]),
        ("a.txt", b"", []),
        ("a.txt", b"no end", ["no end"]),
        ("a.txt", b'"quoted"\nand not\n', ['"quoted"', "and not"]),
        ("a.txt", b'"two\\nlines"\n"b"\n', ["two\nlines", "b"]),
        ("a.txt", b'{"prompt": "x", "id": 3}\n\n{"prompt": ""}\n', ["x", ""]),
        ("a.txt", b'{"no": "prompt"}\n', ['{"no": "prompt"}']),
        ("a.jsonl", b'"a"\n{"prompt": "b"}\n', ["a", "b"]),
    ],
)
def test_a_prompt_file_has_a_prompt_a_line_or_json_lines(
    tmp_path: Path, name: str, data: bytes, prompts: list[str]
) -> None:
    (tmp_path / name).write_bytes(data)
    assert [item["prompt"] for item in read(PROMPT, str(tmp_path / name))] == prompts


@pytest.mark.parametrize(
    "name, data, said",
    [
        ("a.txt", b"ok\n\xff\n", "line 2 is not UTF-8"),
        ("a.txt", b'{"prompt": "x"}\nplain\n', "line 2 must be"),
        ("a.jsonl", b'{"text": "x"}\n', "line 1 must be"),
        ("a.jsonl", b'{"prompt": 3}\n', "line 1 must be"),
    ],
)
def test_a_prompt_file_that_cannot_be_read_is_refused_by_its_line(
    tmp_path: Path, name: str, data: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigError, match=said):
        read(PROMPT, str(tmp_path / name))


@pytest.mark.parametrize(
    "words, said",
    [
        (["--promt", "a"], "--prompt"),
        (["--prompt"], "needs a value"),
        (["--json=yes"], "stands alone"),
        (["max_new_token=3"], "max_new_tokens"),
        (["max_new_tokens=0"], "max_new_tokens=0"),
        (["max_new_tokens=many"], "max_new_tokens"),
        (["hello there"], "key=value"),
        (["sampler=top_q"], "top_"),
        (["sampler.temperature=-1"], "sampler.temperature"),
        (["sampler.temperature=nan"], "sampler.temperature"),
        (["sampler.top_k=-1"], "sampler.top_k"),
        (["sampler.top_p=1.5"], "sampler.top_p"),
        (["sampler.beams=2"], "beams"),
        (["seed=x"], "seed"),
        (["stop=3"], "stop"),
        (["--stop", ""], "stop"),
        (["device=tpu"], "device=tpu"),
        (["--prompt-file", "no/such"], "no/such"),
        (["--config-dir", "no/such"], "no/such"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    run: Path, capsys: pytest.CaptureFixture, words: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(run), "--prompt=a", *words])
    captured = capsys.readouterr()
    assert ended.value.code == 2 and captured.out == ""
    assert captured.err.count("\n") == 1 and captured.err.startswith("tf-generate: ") and said in captured.err


@pytest.mark.parametrize("words, said", [([], "WHERE"), (["no/such/run", "--prompt=a"], "no/such/run")])
def test_a_model_must_be_named_and_there(capsys: pytest.CaptureFixture, words: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_no_prompt_at_all_is_a_mistake(
    run: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    standard_input(monkeypatch, b"")
    with pytest.raises(SystemExit):
        main([str(run)])
    assert "no prompt" in capsys.readouterr().err


def test_a_prompt_given_leaves_standard_input_alone(
    run: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert len(objects(capsys, run, "--prompt", "abc", "max_new_tokens=2")) == 1


def test_a_relative_path_starts_where_the_command_was_started(
    run: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    (step,) = (run / "checkpoints").iterdir()
    for where in (run.name, f"{run.name}/checkpoints/{step.name}", run):
        assert len(objects(capsys, where, "--prompt", "a", "max_new_tokens=2")) == 1


def test_help_needs_no_torch_and_names_every_key_and_sampler() -> None:
    program = "import sys, tfcli.cli.generate as g; g.main(['-h']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    words = ("--prompt-file", "max_new_tokens", "top_p", "sampler.temperature")
    assert all(word in done.stdout for word in words)


def test_a_reader_that_goes_away_ends_the_command_quietly(run: Path) -> None:
    program = "from tfcli.cli.generate import main; main()"
    command = [sys.executable, "-c", program, str(run), "--prompt", "a", "n_samples=40", "batch_size=1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + 13
