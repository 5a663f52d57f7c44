"""tf-generate WHERE [what it is given] [--json] [--stream] [key=value ...]

Writes, or says something of texts, as the model in WHERE has learned; WHERE is a run, a checkpoint folder, or
a model of Hugging Face: a folder, a GGUF file, a name on the Hub. Its generation_config.json is heeded where
no key says otherwise.

  tf-generate runs/run/... --prompt "def " max_new_tokens=60
  tf-generate runs/run/... --prompt "def " sampler.temperature=0.8 sampler.top_p=0.9 n_samples=3 seed=1
  tf-generate runs/run/... --prompt-file prompts.txt --json --stop "###" > completions.jsonl
  tf-generate SmolLM2-135M-Instruct --system "Be brief." --chat "What is the capital of France?"
  tf-generate runs/run/... --source-file english.txt num_beams=4 length_penalty=0.6 > chinese.txt
  tf-generate runs/run/... --text "The [MASK] sat on the mat." top_n=3
  tf-generate runs/run/... --question "Who came?" --context-file page.txt

a decoder goes on from prompts:
  --prompt TEXT        a text to go on from, as it stands; may come several times
  --prompt-file FILE   a prompt a line (an empty line is an empty prompt), or JSON lines: "text" or
                       {"prompt": "text"}; '-', or no such option at all, reads standard input
  --chat TEXT          a message to answer, by the chat template of the tokenizer; of several the user's and
                       the assistant's are in turn, and the user's is the last
  --system TEXT        what stands before the messages
  --chat-file FILE     JSON lines: {"messages": [{"role": "user", "content": "text"}, ...]}
an encoder-decoder writes from sources, one text a line:
  --source TEXT, --source-file FILE    as for prompts; JSON lines have {"source": "text"}. Where it learned to
                       fill gaps, [MASK] or <extra_id_0>, <extra_id_1> ... are the gaps; where it learned
                       pairs, data.separator is added to a source that does not end with it
a masked language model fills each [MASK]; a classifier, a tagger say which class, which tags; a model of
vectors how near the texts are to each other, as cosines, and with --json their vectors:
  --text TEXT, --text-file FILE        as for prompts; JSON lines have {"text": "text"}; a tagger's words are
                       split at white space, or given as {"words": ["a", "word"]}
  --second TEXT        for a classifier of two texts, the second of each; in JSON lines "second"
a reader finds the answer to a question in a context:
  --question TEXT, --context TEXT      one context for all questions, or one for each
  --context-file FILE  a context, the whole of the file
  --text-file FILE     JSON lines: {"question": "text", "context": "text"}

  --stop TEXT          write no further than up to this text, which may hold line ends; may come several times
  --json               one object a line. Of what is written: prompt, messages, or source as read, text, ids,
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
from tfcli.cli.show import show_anything, with_bar
from tfcli.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from tfcli.checkpoint import Loaded
    from tfcli.writing import Settings

ONE_THREAD = 2_000_000  # parameters; below, more threads wait for each other (on busy cores 40 times as long)
OPTIONS = {"--prompt": list, "--prompt-file": str, "--chat": list, "--chat-file": str, "--system": str,
           "--source": list, "--source-file": str, "--text": list,
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
    keys = checked(config, options)
    loaded = load(words[0], config.device, folders)
    task = tasks.task_of(loaded, options)
    task.refuse_misfits(options, words[1:])
    show_anything()
    if task.predict is None:
        write(task, loaded, heeding(loaded, keys, config, options, folders), config, options)
    else:
        tasks.predictions(task, loaded, config, options)


def write(
    task: tasks.Task, loaded: Loaded, how: Settings, config: DictConfig, options: dict[str, Any]
) -> None:
    """Writes after each prompt, or from each source."""
    from tfcli.generate import completions

    if options["--stream"] and how.num_beams > 1 and not options["--json"]:
        no = f"with num_beams={how.num_beams} no text is known before the end; set num_beams=1"
        raise ConfigError(f"--stream: {no}")
    given = tasks.writing(task, loaded, options)
    for end in ("bos", "eos"):
        if vars(how)[end] is None:
            how = replace(how, **{end: loaded.config.data.get(end)})
    if how.sampler.draws and config.seed is None:
        print(f"seed={how.seed}", file=sys.stderr)
    show = given.shown(how.each, options["--json"])
    on_text = show.piece if options["--stream"] else None
    written = completions(loaded.model, loaded.tokenizer, given.prompts, how, on_text, **given.facts)
    for number, completion in enumerate(with_bar(written, len(given.items) * how.each)):
        show.done(number, completion)


def checked(config: DictConfig, options: dict[str, Any]) -> dict[str, Any]:
    """The values of `Settings`, each one checked, as the configuration and the options have them."""
    from tfcli import build  # and torch, which takes its time: what is wrong before here is told at once
    from tfcli.values import check, check_arguments
    from tfcli.writing import Settings

    check(bool, config.generation_config, "generation_config")
    values = {field.name: build.plain(config[field.name]) for field in fields(Settings)}
    values["sampler"] = build.make(config.sampler, "sampler")
    values["stop"] = line_ends(values["stop"]) + options["--stop"]
    if options["--stream"]:
        values["batch_size"] = 1
    return check_arguments(Settings, values, "")


def settings(config: DictConfig, options: dict[str, Any]) -> Settings:
    """What the configuration and the options say, and a seed if they do not."""
    from tfcli.generate import fresh_seed
    from tfcli.writing import Settings

    how = Settings(**checked(config, options))
    return how if how.seed is not None else replace(how, seed=fresh_seed())


def heeding(
    loaded: Loaded, keys: dict[str, Any], config: DictConfig, options: dict[str, Any], folders: Sequence[Path]
) -> Settings:
    """The settings with what the model's folder says of how it writes, where the user says nothing."""
    said = folders_own(loaded, keys, config)
    if not said:
        return settings(config, options)
    try:
        return settings(compose("generate", [*said, *config.overrides], folders), options)
    except ConfigError as error:
        heard = f"its generation_config.json says {' '.join(said)}, which generation_config=false leaves out"
        raise ConfigError(f"{error} ({heard})") from None


def folders_own(loaded: Loaded, keys: dict[str, Any], config: DictConfig) -> list[str]:
    """What the folder of a model says of how it writes, as overrides, where the user says nothing."""
    if not loaded.generation or not config.generation_config:
        return []
    from tfcli.hub.generation import User, overrides

    named = [override.partition("=")[0].lstrip("+~") for override in config.overrides]
    user = User(named, keys["sampler"].draws, keys["num_beams"], keys["n_samples"])
    files = [loaded.path / name for name in ("generation_config.json", "config.json")]  # older have but this
    file = files[0] if files[0].is_file() else files[1]
    return overrides(loaded.generation, loaded.tokenizer, file, tasks.start_id(loaded), user)


def load(where: str, device: str, folders: Sequence[Path]) -> Loaded:
    """The model; one thread works on a model so small that a second would cost more than it does."""
    import torch

    from tfcli import origin
    from tfcli.device import pick_device

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    loaded = origin.load(where, pick_device(device), folders, say=lambda text: print(text, file=sys.stderr))
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
