"""What tf-generate does with a model: by its family and by what its head gives scores of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from tfcli.cli import show
from tfcli.cli.prompts import (
    CLASSED,
    MASKED,
    PROMPT,
    QUESTION,
    SOURCE,
    WORDS,
    Form,
    Item,
    decoded,
    gather,
    valid,
)
from tfcli.errors import ConfigError

if TYPE_CHECKING:
    from tfcli.checkpoint import Loaded

Options = dict[str, Any]
INPUTS = ("--prompt", "--prompt-file", "--source", "--source-file", "--text", "--text-file", "--second",
          "--question", "--context", "--context-file")  # fmt: skip
WRITING = ("--stop", "--stream")


class Task(NamedTuple):
    """What is given, what is said of it, and which options and keys have a say."""

    name: str
    form: Form
    options: tuple[str, ...]
    keys: tuple[str, ...] | None = None  # None: those of writing
    predict: Callable[[Loaded, list[Item], Any], Iterator[Any]] | None = None
    show: Callable[[Any, int, bool], None] | None = None

    def refuse_misfits(self, options: Options, overrides: list[str]) -> None:
        """Raises ConfigError for an option or a key that this kind of model does not take."""
        given = [option for option in (*INPUTS, *WRITING) if options[option] and option not in self.options]
        if given:
            raise ConfigError(f"{given[0]}: this model is {self.name}; give {self.wanted}")
        for override in overrides:
            key = override.partition("=")[0].lstrip("+~").partition(".")[0]
            if key == "top_n" if self.keys is None else key not in self.keys:
                have = "" if self.keys is None else f"; {', '.join(self.keys)} have"
                raise ConfigError(f"{override}: has no say with {self.name}{have}")

    @property
    def wanted(self) -> str:
        """The options that fit, for messages."""
        if self.form is QUESTION:
            return "--question TEXT and --context TEXT, or --text-file FILE"
        return f"{self.form.option} TEXT or {self.form.option}-file FILE"


def fill(loaded: Loaded, items: list[Item], how: Any) -> Iterator[Any]:
    from tfcli import predict

    texts, data = [item["text"] for item in items], loaded.config.data
    bos, eos = (data.get(end) is not False for end in ("bos", "eos"))
    return predict.fill(loaded.model, loaded.tokenizer, texts, how, bos, eos)


def classify(loaded: Loaded, items: list[Item], how: Any) -> Iterator[Any]:
    from tfcli import predict

    pairs = [(item["text"], item.get("second")) for item in items]
    return predict.classify(loaded.model, loaded.tokenizer, loaded.labels, pairs, how)


def tag(loaded: Loaded, items: list[Item], how: Any) -> Iterator[Any]:
    from tfcli import predict

    sentences = [item["words"] if "words" in item else item["text"].split() for item in items]
    return predict.tag(loaded.model, loaded.tokenizer, loaded.labels, sentences, how, room(loaded))


def answer(loaded: Loaded, items: list[Item], how: Any) -> Iterator[Any]:
    from tfcli import predict

    questions = [(item["question"], item["context"]) for item in items]
    return predict.answer(loaded.model, loaded.tokenizer, questions, how, room(loaded))


def sources(loaded: Loaded, texts: list[str]) -> Options:
    """What an encoder-decoder writes from, as it was trained on it.

    Where it learned pairs, each source ends with data.separator, which is added unless it does already; the
    sources of data/tasks.py hold their own. Of other objectives, the special tokens are no text in sources.
    """
    objective = loaded.objective
    separator = (objective.needs == "pair" and loaded.config.data.get("separator")) or ""
    texts = [text if text.endswith(separator) else text + separator for text in texts]
    return {"sources": texts, "start_id": objective.start_id, "special": objective.special}


def room(loaded: Loaded) -> int:
    """How many tokens are read at once: as in training."""
    return loaded.config.train.seq_len


READING = ("batch_size", "device")
TASKS = {  # by family and head
    ("decoder", "tokens"): Task("a decoder", PROMPT, ("--prompt", "--prompt-file", *WRITING)),
    ("encoder_decoder", "tokens"): Task(
        "an encoder-decoder", SOURCE, ("--source", "--source-file", *WRITING)
    ),
    ("encoder", "tokens"): Task(
        "a masked language model", MASKED, ("--text", "--text-file"), ("top_n", *READING), fill, show.filled
    ),
    ("encoder", "class"): Task(
        "a classifier", CLASSED, ("--text", "--text-file", "--second"), READING, classify, show.classified
    ),
    ("encoder", "tags"): Task("a tagger", WORDS, ("--text", "--text-file"), READING, tag, show.tagged),
    ("encoder", "span"): Task(
        "a reader", QUESTION, ("--question", "--context", "--context-file", "--text-file"), READING, answer,
        show.answered,
    ),
}  # fmt: skip


def task_of(loaded: Loaded) -> Task:
    """The task of a model. Raises ConfigError where there is none."""
    model = loaded.model
    if (model.family, model.head.says) not in TASKS:
        raise ConfigError(
            f"a {model.family} whose head gives scores of {model.head.says} has nothing to say here"
        )
    return TASKS[model.family, model.head.says]


def given(form: Form, options: Options) -> list[Item]:
    """What is to be read: from the options, from files, or from standard input."""
    if form is QUESTION:
        return gather(form, questions(options), options["--text-file"])
    items = [form.item(text) for text in options[form.option]]
    items = gather(form, items, options[f"{form.option}-file"])
    seconds = options["--second"]
    if seconds and len(seconds) != len(items):
        raise ConfigError(f"{len(items)} texts and {len(seconds)} --second: must be equally many")
    return [item | {"second": valid(second)} for item, second in zip(items, seconds)] if seconds else items


def questions(options: Options) -> list[Item]:
    """Each question with its context, or all with the one there is."""
    asked, contexts = options["--question"], options["--context"]
    if options["--context-file"]:
        file = options["--context-file"]
        contexts = [*contexts, decoded(file, "standard input" if file == "-" else file, "--context-file")]
    if bool(asked) != bool(contexts):
        raise ConfigError(f"--{'context' if asked else 'question'}: missing; answers are found in a context")
    contexts = contexts * len(asked) if len(contexts) == 1 else contexts
    if len(asked) != len(contexts):
        counts = f"{len(asked)} questions and {len(contexts)} contexts"
        raise ConfigError(f"{counts}: must be equally many, or one context for all")
    return [{"question": valid(q), "context": valid(c)} for q, c in zip(asked, contexts)]


def predictions(task: Task, loaded: Loaded, config: Any, options: Options) -> None:
    """Says what an encoder says."""
    from tfcli import build, predict

    values = {field.name: build.plain(config[field.name]) for field in fields(predict.Settings)}
    how = build.settings(predict.Settings, values, "")
    items = given(task.form, options)
    for number, said in enumerate(show.with_bar(task.predict(loaded, items, how), len(items), "text")):
        task.show(said, number, options["--json"])
