"""tf-export: what it takes, what it says, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hub.made import run_of

from tfcli.cli import export as command
from tfcli.cli.export import bytes_of, main
from tfcli.errors import ConfigError

pytest.importorskip("transformers")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run."""
    return run_of(tmp_path / "run", "preset=llama3")


def fails(capsys: pytest.CaptureFixture, *arguments: str) -> tuple[int, str]:
    """The exit code of a command that cannot be carried out, and its last line."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    return end.value.code, err.splitlines()[-1]


def test_the_last_line_tells_what_was_written_and_found(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    main([str(run), str(tmp_path / "out"), "--shard-size", "20KB", "--dtype=bfloat16"])
    out, err = capsys.readouterr()
    said = f"{tmp_path / 'out'}: LlamaForCausalLM, 14,256 parameters; loaded by transformers, the largest"
    assert (
        out.startswith(said) and out.endswith("the tokenizer gives the same ids\n") and out.count("\n") == 1
    )
    assert err == "tf-export: writing\ntf-export: checking\n"
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) == 2
    assert f"tf-export {run}" in (tmp_path / "out" / "README.md").read_text()


def test_a_name_that_ends_in_gguf_is_such_a_file(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("gguf")
    main([str(run), str(tmp_path / "model.gguf"), "--dtype", "float16"])
    out, _ = capsys.readouterr()
    assert "model.gguf: LlamaForCausalLM" in out and (tmp_path / "model.gguf").read_bytes()[:4] == b"GGUF"


def test_without_transformers_the_last_line_says_so(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfcli.hub.verify.installed", lambda: False)
    main([str(run), str(tmp_path / "out")])
    assert capsys.readouterr().out.endswith("; not checked (transformers is not installed)\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "WHERE and FOLDER are missing: tf-export WHERE FOLDER"),
        (["{run}"], "WHERE and FOLDER are missing"),
        (["{run}", "{out}", "more"], "more: one model and one folder"),
        (
            ["{run}", "{out}", "--dtype", "float64"],
            "--dtype float64: must be one of float32, bfloat16, float16",
        ),
        (["{run}", "{out}.gguf", "--dtype", "bfloat16"], "--dtype bfloat16: must be one of float32, float16"),
        (["{run}", "{out}.gguf", "--shard-size", "1GB"], "--shard-size 1GB: a GGUF file is one file"),
        (["{run}", "{out}", "--shard-size", "big"], "--shard-size big: must be a size above 0"),
        (["{run}", "{out}", "--shard", "5GB"], "--shard: no such option; did you mean '--shard-size'?"),
        (["{run}", "{run}"], "/run: is there already; name a new folder, or an empty one"),
        (["./no/such/run", "{out}"], "no such folder"),
        (["{run}", "{out}", "--config-dir", "nowhere"], "--config-dir nowhere: no such folder"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], said: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    named = [argument.format(run=run, out=tmp_path / "out") for argument in arguments]
    code, line = fails(capsys, *named)
    assert code == 2 and line.startswith("tf-export: ") and said in line
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_model_that_no_class_holds_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = run_of(tmp_path / "run", "preset=llama3", "placement=sandwich")
    code, line = fails(capsys, run, tmp_path / "out")
    assert code == 2 and "placement=sandwich: no class of Hugging Face" in line


@pytest.mark.parametrize(
    ("text", "size"),
    [("5GB", 5 * 10**9), ("2GiB", 2 << 30), ("500mb", 5 * 10**8), ("1.5 KB", 1500), ("77", 77)],
)
def test_sizes_are_read_as_they_are_written(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["0", "-5GB", "GB", "5PB", "", "1e9", "5 I"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a size above 0"):
        bytes_of(text)


def test_help_is_there_at_once() -> None:
    code = "import sys; from tfcli.cli.export import main; main(['--help']); print(*sorted(sys.modules))"
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.monotonic() - began < 5
    assert done.stdout.startswith(command.__doc__.splitlines()[0])
    assert not {"torch", "hydra", "transformers", "safetensors"} & set(done.stdout.splitlines()[-1].split())


def test_a_process_that_is_told_to_end_leaves_nothing(run: Path, tmp_path: Path) -> None:
    code = f"""
import time
from tfcli.cli.export import main
from tfcli.tokenizer import Tokenizer
Tokenizer.save = lambda *a: (print("now", flush=True), time.sleep(60))
main([{str(run)!r}, {str(tmp_path / "out")!r}])
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "now\n" and len(list(tmp_path.iterdir())) == 2
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    process.stdout.close()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
