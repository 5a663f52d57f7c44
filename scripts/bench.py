"""How fast tfcli is, as ratios in one run: medians of interleaved measurements, same shapes, random data.

    python scripts/bench.py [--only train decode seq2seq e2e startup hub] [--quick] [--check]

Needs `pip install -e '.[bench]'` for `transformers`, which it is measured against. Takes a few minutes on two
cores that do nothing else. --quick measures fewer times; --check ends with exit code 1 if a target is missed.
"""

import argparse
import io
import os
import random
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from functools import partial
from pathlib import Path

os.environ.setdefault("TQDM_DISABLE", "1")
SECTIONS = ("train", "decode", "seq2seq", "e2e", "startup", "hub")
SMALL = {"n_layers": 4, "d_model": 128, "n_heads": 4, "context": 64, "batch": 12}
LARGE = {"n_layers": 6, "d_model": 384, "n_heads": 6, "context": 256, "batch": 16}
VOCABULARY = 65  # of character-level Shakespeare
NO_IDS = {"bos_token_id": None, "eos_token_id": None}
Work = Callable[[], object]


@dataclass(frozen=True)
class Result:
    """One line of the table."""

    what: str
    ours: float  # seconds
    theirs: float
    target: float
    faster: bool = True  # the ratio is theirs / ours and should be high; False: ours / theirs, and low

    @property
    def ratio(self) -> float:
        """Over the target is good where faster, below it where not."""
        return self.theirs / self.ours if self.faster else self.ours / self.theirs

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self.ratio >= self.target if self.faster else self.ratio <= self.target

    def __str__(self) -> str:
        aim = f"{'>=' if self.faster else '<='} {self.target:.2f}"
        times = f"{self.ours * 1e3:9.1f} {self.theirs * 1e3:9.1f}"
        return f"{self.what:58} {times} {self.ratio:7.2f}  {aim:8} {'yes' if self.met else 'NO'}"


def interleaved(rounds: int, **works: Work) -> dict[str, float]:
    """Median seconds of each work, measured in turns: what slows the machine slows all of them."""
    seconds = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            if turn:  # the first turn warms up
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


# --- a training step --------------------------------------------------------------------------------------


def overrides(shape: dict[str, int], *more: str) -> list[str]:
    """GPT-2 of that shape, for tf-train."""
    size = {**shape, "n_kv_heads": shape["n_heads"], "d_ff": 4 * shape["d_model"], "dropout": 0.0}
    batch = size.pop("batch")
    return ["preset=gpt2", f"train.batch_size={batch}", *(f"size.{k}={v}" for k, v in size.items()), *more]


def our_step(shape: dict[str, int], precision: str) -> Work:
    """The bare step: forward, loss, backward, clipping, AdamW; tf-train without its data and its log."""
    import torch

    from tfcli import build
    from tfcli.batch import Batch
    from tfcli.cli.door import compose
    from tfcli.loss import cross_entropy_sum
    from tfcli.optimizer import clip_gradients

    config = compose("train", overrides(shape, f"precision={precision}"))
    model = build.model(config, VOCABULARY).train()
    optimizer, parameters = build.make(config.optimizer, "optimizer").build(model), list(model.parameters())
    chosen = build.make(config.precision, "precision").resolve("cpu", shape["d_model"])

    def step() -> None:
        ids = torch.randint(VOCABULARY, (shape["batch"], shape["context"] + 1))
        batch = Batch(inputs=ids[:, :-1], labels=ids[:, 1:])
        with chosen.autocast("cpu"):
            loss = cross_entropy_sum(model(batch), batch.labels)
        (loss / batch.labels.numel()).backward()
        clip_gradients(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def their_step(shape: dict[str, int]) -> Work:
    """The same with transformers' GPT-2 and torch's AdamW, in a plain loop."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    size = {"n_embd": shape["d_model"], "n_layer": shape["n_layers"], "n_head": shape["n_heads"]}
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=shape["context"], use_cache=False, **size, **dropouts, **NO_IDS
    )
    model = GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)

    def step() -> None:
        ids = torch.randint(VOCABULARY, (shape["batch"], shape["context"]))
        model(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def train(quick: bool) -> Iterator[Result]:
    """Whole training steps against transformers in fp32."""
    for shape, rounds, targets in ((SMALL, 60, {"fp32": 1.8}), (LARGE, 9, {"fp32": 1.2, "auto": 2.0})):
        works = {precision: our_step(shape, precision) for precision in targets}
        seconds = interleaved(rounds // 3 if quick else rounds, theirs=their_step(shape), **works)
        name = "training step, {n_layers} layers, {d_model} wide, {context} x {batch}".format(**shape)
        for precision, target in targets.items():
            yield Result(f"{name}, {precision}", seconds[precision], seconds["theirs"], target)


# --- decoding ---------------------------------------------------------------------------------------------


class Ids:
    """A tokenizer of numbers: decoding is measured, not text."""

    bos_id = eos_id = None
    special_ids = frozenset()

    def __init__(self, vocab_size: int, prompt: list[int]) -> None:
        self.vocab_size, self.prompt = vocab_size, prompt

    def encode(self, text: str) -> list[int]:
        """The one prompt there is."""
        return self.prompt

    def decode(self, ids: list[int], skip_special: bool = True) -> str:
        """Something short."""
        return " ".join(map(str, ids))


def decoders(
    preset: str, size: str, theirs: object, vocab_size: int, n_new: int, threads: int
) -> dict[str, Work]:
    """Greedy completions of n_new tokens, batch 1, with the cache, by both."""
    import torch

    from tfcli import build
    from tfcli.cli.door import compose
    from tfcli.generate import generate

    model = build.model(
        compose("train", [f"preset={preset}", f"size={size}", "head=tied"]), vocab_size
    ).eval()
    ids = torch.randint(vocab_size, (1, 8))
    tokenizer = Ids(vocab_size, ids[0].tolist())
    how = {"do_sample": False, "use_cache": True, "min_new_tokens": n_new, "max_new_tokens": n_new}

    def ours() -> None:
        torch.set_num_threads(threads)
        (completion,) = generate(model, tokenizer, ["x"], max_new_tokens=n_new)
        assert len(completion.ids) == n_new

    def other() -> None:
        torch.set_num_threads(threads)
        out = theirs.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **how)
        assert out.shape[1] == 8 + n_new

    return {"ours": ours, "theirs": other}


def decode(quick: bool) -> Iterator[Result]:
    """Greedy decoding against transformers' generate, fp32; the tiny model on one thread, best for both."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    threads = torch.get_num_threads()
    shape = {
        "hidden_size": 64,
        "intermediate_size": 172,
        "num_hidden_layers": 5,
        "max_position_embeddings": 512,
    }
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    config = LlamaConfig(vocab_size=512, tie_word_embeddings=True, **shape, **heads, **NO_IDS)
    llama = LlamaForCausalLM(config).eval()
    works = decoders("llama2", "stories_260k", llama, 512, n_new=200, threads=1)
    seconds = interleaved(3 if quick else 9, **works)
    yield Result("greedy decoding, Llama of 5 layers, 64 wide, 200 tokens", **seconds, target=4.0)
    gpt2 = GPT2LMHeadModel(GPT2Config(**NO_IDS)).eval()
    works = decoders("gpt2", "gpt2_124m", gpt2, 50257, n_new=48, threads=threads)
    seconds = interleaved(3 if quick else 7, **works)
    torch.set_num_threads(threads)
    yield Result("greedy decoding, GPT-2 124M, 48 tokens", **seconds, target=1.5)


# --- an encoder-decoder -----------------------------------------------------------------------------------


def translator() -> tuple[object, list[list[int]]]:
    """A Transformer of 2017 of four and four layers, 256 wide, that nobody trained, and 8 ragged sources."""
    import torch

    from tfcli import build
    from tfcli.cli.door import compose

    size = {"d_model": 256, "n_layers": 4, "n_heads": 4, "n_kv_heads": 4, "d_ff": 1024, "context": 512}
    config = compose("train", ["preset=transformer2017", *(f"size.{k}={v}" for k, v in size.items())])
    torch.manual_seed(0)
    model = build.model(config, 4000).eval()
    chance = random.Random(0)
    return model, [chance.choices(range(10, 4000), k=chance.randint(8, 32)) for _ in range(8)]


def seq2seq(quick: bool) -> Iterator[Result]:
    """What the cache saves, which grows with the length, and what four beams cost. No row ends by itself."""
    import torch

    from tfcli.constraints import Constraints
    from tfcli.opening import Opening
    from tfcli.search import Ranking, search

    model, sources = translator()

    @torch.inference_mode()
    def run(n_new: int, n_beams: int, cache: bool) -> None:
        openings = [Opening([1], n_new, source) for source in sources]
        search(model, openings, n_beams, 1, Ranking(), Constraints(), model.vocab_size, cache)

    def write(n_new: int, n_beams: int = 1, cache: bool = True) -> Work:
        return partial(run, n_new, n_beams, cache)

    rounds = 1 if quick else 3
    for n_new, target in ((16, 1.0), (64, 2.0), (128, 3.0)):
        seconds = interleaved(rounds, ours=write(n_new), theirs=write(n_new, cache=False))
        yield Result(f"8 sources, {n_new} tokens each: cache to no cache", **seconds, target=target)
    seconds = interleaved(rounds, ours=write(64, n_beams=4), theirs=write(64))
    yield Result("8 sources, 64 tokens: 4 beams to greedy", **seconds, target=4.5, faster=False)


# --- whole commands ---------------------------------------------------------------------------------------


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder with random text of 65 characters, which is the working folder for as long."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        symbols = random.Random(0).choices(string.printable[:VOCABULARY], k=1_000_000)
        Path(name, "text.txt").write_text("".join(symbols))
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(here)


def prepared(arguments: list[str]) -> object:
    """The run of tf-train, up to its first step."""
    from tfcli import assemble
    from tfcli.cli.door import compose
    from tfcli.start import start

    quiet = ["data=text", "data.path=text.txt", f"data.cache_dir={Path.cwd() / 'cache'}", "tokenizer=char"]
    config, checkpoint = start(compose("train", quiet + arguments), arguments, None, [], print)
    run = assemble.assemble(assemble.plan(config, checkpoint))
    run.begin()
    return run


def e2e(quick: bool) -> Iterator[Result]:
    """The loop of tf-train, with its data, log, curve and checkpoints, against the bare step."""
    n_steps, rounds = (100, 2) if quick else (300, 5)
    moments = [
        "train.log_every=10",
        "train.save_every=100",
        "train.eval_every=null",
        f"train.steps={n_steps}",
    ]
    with scratch(), redirect_stderr(io.StringIO()):
        seconds = {"ours": [], "theirs": []}
        bare = our_step(SMALL, "auto")
        for turn in range(rounds):
            run = prepared(overrides(SMALL, *moments, f"out=run{turn}"))
            start = time.perf_counter()
            run.train()
            middle = time.perf_counter()
            for _ in range(n_steps):
                bare()
            seconds["ours"].append((middle - start) / n_steps)
            seconds["theirs"].append((time.perf_counter() - middle) / n_steps)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    yield Result("a step of tf-train, to the bare step", **medians, target=1.1, faster=False)


def startup(quick: bool) -> Iterator[Result]:
    """Whole processes against importing what they cannot do without."""
    rounds = 3 if quick else 11
    with scratch():
        with redirect_stderr(io.StringIO()):
            size = ["preset=llama2", "size=stories_260k", "train.seq_len=64", "train.steps=2", "out=run"]
            prepared([*size, "train.eval_every=null"]).train()
        tiny = ["generate", "run", "--prompt", "abc", "max_new_tokens=16"]
        for what, words, imports, target in (
            ("tf-train --help, to `import hydra`", ["train", "--help"], "hydra", 1.5),
            ("tf-generate on a tiny checkpoint, to `import torch`", tiny, "torch", 1.6),
        ):
            ours = partial(silently, [*command(words[0]), *words[1:]])
            theirs = partial(silently, [sys.executable, "-c", f"import {imports}; print(1)"])
            seconds = interleaved(rounds, ours=ours, theirs=theirs)
            yield Result(what, **seconds, target=target, faster=False)


def hub(quick: bool) -> Iterator[Result]:
    """A model folder of the size of SmolLM2-135M, loaded in a new process to write one token, by both."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
             "intermediate_size": 1536, "vocab_size": 49152, "tie_word_embeddings": True}  # fmt: skip
    theirs = (
        "from transformers import AutoModelForCausalLM, AutoTokenizer; where = 'model'\n"
        "tokens = AutoTokenizer.from_pretrained(where)('abc', return_tensors='pt').input_ids\n"
        "print(AutoModelForCausalLM.from_pretrained(where).generate(tokens, max_new_tokens=1))"
    )
    with scratch() as folder, redirect_stderr(io.StringIO()):
        from tfcli.tokenizer.trained import Char

        LlamaForCausalLM(LlamaConfig(**shape, **NO_IDS)).save_pretrained(folder / "model")
        Char().train([string.printable]).save(folder / "model")
        words = [*command("generate"), "model", "--prompt", "abc", "max_new_tokens=1", "device=cpu"]
        seconds = interleaved(
            2 if quick else 5,
            ours=partial(silently, words),
            theirs=partial(silently, [sys.executable, "-c", theirs]),
        )
        yield Result("135M parameters loaded, one token, whole processes", **seconds, target=1.0)


def command(name: str) -> list[str]:
    """The installed command of this environment."""
    installed = Path(sys.executable).with_name(f"tf-{name}")
    return (
        [str(installed)]
        if installed.exists()
        else [sys.executable, "-c", f"from tfcli.cli.{name} import main; main()"]
    )


def silently(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout, f"{words}: {done.stderr}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="parts of the table")
    parser.add_argument("--quick", action="store_true", help="measure fewer times")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a target is missed")
    asked = parser.parse_args()
    if {"train", "decode", "hub"} & set(asked.only):
        try:
            import transformers  # noqa: F401
        except ImportError:
            sys.exit("bench.py: needs transformers; pip install -e '.[bench]'")
    print(f"{'':58} {'ours ms':>9} {'other ms':>9} {'ratio':>7}  {'target':8} met", flush=True)
    met = True
    for section in asked.only:
        for result in globals()[section](asked.quick):
            print(result, flush=True)
            met = met and result.met
    sys.exit(1 if asked.check and not met else 0)


if __name__ == "__main__":
    main()
