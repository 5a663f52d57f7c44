"""tf-generate WHERE [what it is given] [--json] [--stream] [key=value ...]

Writes, or says something of texts, as the model in WHERE has learned; WHERE is a run or a checkpoint folder.

  tf-generate runs/run/... --prompt "def " max_new_tokens=60
  tf-generate runs/run/... --prompt "def " sampler.temperature=0.8 sampler.top_p=0.9 n_samples=3 seed=1
  tf-generate runs/run/... --prompt-file prompts.txt --json --stop "###" > completions.jsonl
  tf-generate runs/run/... --source-file english.txt num_beams=4 length_penalty=0.6 > chinese.txt
  tf-generate runs/run/... --text "The [MASK] sat on the mat." top_n=3
  tf-generate runs/run/... --question "Who came?" --context-file page.txt

a decoder goes on from prompts:
  --prompt TEXT        a text to go on from, as it stands; may come several times
  --prompt-file FILE   a prompt a line (an empty line is an empty prompt), or JSON lines: "text" or
                       {"prompt": "text"}; '-', or no such option at all, reads standard input
an encoder-decoder writes from sources, one text a line:
  --source TEXT, --source-file FILE    as for prompts; JSON lines have {"source": "text"}. Where it learned to
                       fill gaps, [MASK] or <extra_id_0>, <extra_id_1> ... are the gaps; where it learned
                       pairs, data.separator is added to a source that does not end with it
a masked language model fills each [MASK]; a classifier, a tagger say which class, which tags:
  --text TEXT, --text-file FILE        as for prompts; JSON lines have {"text": "text"}; a tagger's words are
                       split at white space, or given as {"words": ["a", "word"]}
  --second TEXT        for a classifier of two texts, the second of each; in JSON lines "second"
a reader finds the answer to a question in a context:
  --question TEXT, --context TEXT      one context for all questions, or one for each
  --context-file FILE  a context, the whole of the file
  --text-file FILE     JSON lines: {"question": "text", "context": "text"}

  --stop TEXT          write no further than up to this text, which may hold line ends; may come several times
  --json               one object a line. Of what is written: prompt, or source as read, text, ids,
                       finish_reason (eos, stop, length, or constraints where they left no token), score
                       where beams are searched, seed where tokens are drawn
  --stream             show text as it is written (with --json: each object as soon as it is done)
  --config-dir DIR     a folder with further choices
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfcli.cli import tasks
from tfcli.cli.arguments import parse
from tfcli.cli.door import compose, existing, group_help, run
from tfcli.cli.help import keys_help
from tfcli.cli.show import AsJson, AsLines, AsText, show_anything, with_bar
from tfcli.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from tfcli.checkpoint import Loaded
    from tfcli.generate import Settings

ONE_THREAD = 2_000_000  # parameters; below, more threads wait for each other (on busy cores 40 times as long)
OPTIONS = {"--prompt": list, "--prompt-file": str, "--source": list, "--source-file": str, "--text": list,
           "--text-file": str, "--second": list, "--question": list, "--context": list, "--context-file": str,
           "--stop": list, "--json": bool, "--stream": bool, "--config-dir": list, "--help": bool,
           "-h": bool}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """The command's entry."""
    run("tf-generate", generate, arguments)


def generate(arguments: list[str]) -> None:
    """Compose, load, and do what the model is for."""
    words, options = parse(arguments, OPTIONS)
    if options["--help"] or options["-h"]:
        return print(help_text(existing(options["--config-dir"])))
    if not words:
        raise ConfigError("WHERE is missing: tf-generate WHERE --prompt TEXT; see tf-generate --help")
    folders = existing(options["--config-dir"])
    config = compose("generate", words[1:], folders)
    how = settings(config, options)
    loaded = load(words[0], config.device, folders)
    task = tasks.task_of(loaded)
    task.refuse_misfits(options, words[1:])
    show_anything()
    if task.predict is None:
        write(task, loaded, how, config, options)
    else:
        tasks.predictions(task, loaded, config, options)


def write(
    task: tasks.Task, loaded: Loaded, how: Settings, config: DictConfig, options: dict[str, Any]
) -> None:
    """Writes after each prompt, or from each source."""
    from tfcli.generate import completions

    if options["--stream"] and how.num_beams > 1 and not options["--json"]:
        raise ConfigError(f"--stream: with num_beams={how.num_beams} no text is known before the end")
    name = task.form.parts[0]
    texts = [item[name] for item in tasks.given(task.form, options)]
    for end in ("bos", "eos"):
        if vars(how)[end] is None:
            how = replace(how, **{end: loaded.config.data.get(end)})
    if how.sampler.draws and config.seed is None:
        print(f"seed={how.seed}", file=sys.stderr)
    plain: Any = AsLines() if name == "source" else AsText(texts, how.each)
    show = AsJson() if options["--json"] else plain
    on_text = show.piece if options["--stream"] else None
    prefix = {"prefix": loaded.objective.prefix}
    facts: dict[str, Any] = tasks.sources(loaded, texts) if name == "source" else prefix
    prompts = texts if name == "prompt" else None
    written = completions(loaded.model, loaded.tokenizer, prompts, how, on_text, **facts)
    for number, completion in enumerate(with_bar(written, len(texts) * how.each)):
        show.done(number, completion)


def settings(config: DictConfig, options: dict[str, Any]) -> Settings:
    """What the configuration and the options say, and a seed if they do not."""
    from tfcli import build  # and torch, which takes its time: what is wrong before here is told at once
    from tfcli.generate import Settings, fresh_seed

    values = {field.name: build.plain(config[field.name]) for field in fields(Settings)}
    values["sampler"] = build.make(config.sampler, "sampler")
    values["stop"] = line_ends(values["stop"]) + options["--stop"]
    if options["--stream"]:
        values["batch_size"] = 1
    how = build.settings(Settings, values, "")
    return how if how.seed is not None else replace(how, seed=fresh_seed())


def load(where: str, device: str, folders: Sequence[Path]) -> Loaded:
    """The checkpoint; one thread works on a model so small that a second would cost more than it does."""
    import torch

    from tfcli import checkpoint
    from tfcli.device import pick_device

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    loaded = checkpoint.load(where, pick_device(device), folders)
    if sum(parameter.numel() for parameter in loaded.model.parameters()) >= ONE_THREAD:
        torch.set_num_threads(threads)
    return loaded


def line_ends(stop: Any) -> list[Any]:
    r"""The texts of `stop`, where \n and \t stand for a line end and a tab: Hydra's grammar has none."""
    texts = stop if isinstance(stop, list) else [stop]
    return [t.replace("\\n", "\n").replace("\\t", "\t") if isinstance(t, str) else t for t in texts]


def help_text(folders: Sequence[Path] = ()) -> str:
    """How to call it, the keys with their defaults, and the samplers."""
    return f"{__doc__}\nkeys (key=value):\n{keys_help('generate')}\n\n{group_help(['sampler'], folders)}"
