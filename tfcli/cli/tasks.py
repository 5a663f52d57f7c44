"""What tf-generate does with a model: by its family and by what its head gives scores of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from tfcli.cli import show
from tfcli.cli.prompts import (
    CHAT,
    CLASSED,
    MASKED,
    PROMPT,
    QUESTION,
    SOURCE,
    WORDS,
    Form,
    Item,
    chats,
    decoded,
    gather,
    valid,
)
from tfcli.errors import ConfigError

if TYPE_CHECKING:
    from tfcli.checkpoint import Loaded

Options = dict[str, Any]
CHATS = ("--chat", "--chat-file", "--system")
INPUTS = ("--prompt", "--prompt-file", *CHATS, "--source", "--source-file", "--text", "--text-file",
          "--second", "--question", "--context", "--context-file")  # fmt: skip
WRITING = ("--stop", "--stream")


class Task(NamedTuple):
    """What is given, what is said of it, and which options and keys have a say."""

    name: str
    form: Form
    options: tuple[str, ...]
    keys: tuple[str, ...] | None = None  # None: those of writing
    predict: Callable[[Loaded, list[Item], Any], Iterator[Any]] | None = None
    show: Callable[[Any, int, bool], None] | None = None
    together: Callable[[list[Any]], None] | None = None  # shows all at once, where it is not JSON

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

    texts = [item["text"] for item in items]
    return predict.fill(loaded.model, loaded.tokenizer, texts, how, *around(loaded))


def classify(loaded: Loaded, items: list[Item], how: Any) -> Iterator[Any]:
    from tfcli import predict

    pairs = [(item["text"], item.get("second")) for item in items]
    return predict.classify(loaded.model, loaded.tokenizer, loaded.labels, pairs, how, *around(loaded))


def tag(loaded: Loaded, items: list[Item], how: Any) -> Iterator[Any]:
    from tfcli import predict

    words = [item["words"] if "words" in item else item["text"].split() for item in items]
    ends = around(loaded)
    return predict.tag(loaded.model, loaded.tokenizer, loaded.labels, words, how, room(loaded), *ends)


def embed(loaded: Loaded, items: list[Item], how: Any) -> Iterator[Any]:
    from tfcli import predict

    texts = [item["text"] for item in items]
    return predict.vectors(loaded.model, loaded.tokenizer, texts, how, *around(loaded))


def answer(loaded: Loaded, items: list[Item], how: Any) -> Iterator[Any]:
    from tfcli import predict

    questions = [(item["question"], item["context"]) for item in items]
    ends = around(loaded)
    return predict.answer(loaded.model, loaded.tokenizer, questions, how, room(loaded), *ends)


def around(loaded: Loaded) -> tuple[bool, bool]:
    """Whether texts begin with BOS, and end with EOS, as in training."""
    return tuple(loaded.config.data.get(end) is not False for end in ("bos", "eos"))


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
    ("decoder", "tokens"): Task("a decoder", PROMPT, ("--prompt", "--prompt-file", *CHATS, *WRITING)),
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
    ("encoder", "vector"): Task(
        "a model of vectors", MASKED, ("--text", "--text-file"), READING, embed, show.embedded, show.compared
    ),
}  # fmt: skip


def task_of(loaded: Loaded, options: Options) -> Task:
    """The task of a model. Raises ConfigError where there is none, and for what is given in two ways."""
    model = loaded.model
    if (model.family, model.head.says) not in TASKS:
        raise ConfigError(
            f"a {model.family} whose head gives scores of {model.head.says} has nothing to say here"
        )
    task = TASKS[model.family, model.head.says]
    chat = next((option for option in CHATS if options[option] is not None and options[option] != []), None)
    if chat is None or task.form is not PROMPT:
        return task
    prompt = next((option for option in ("--prompt", "--prompt-file") if options[option]), None)
    if prompt:
        raise ConfigError(f"{chat}: goes with messages, and {prompt} gives a text; leave one out")
    return task._replace(form=CHAT)


class Writing(NamedTuple):
    """What is written from."""

    items: list[Item]
    prompts: list[Any] | None  # texts or ids; None: of an encoder-decoder
    facts: Options  # what else `completions` is told
    shown: Callable[[int, bool], Any]  # (completions of each, whether as JSON) -> who shows them


def writing(task: Task, loaded: Loaded, options: Options) -> Writing:
    """What a model that writes is given."""
    items = given(task.form, options)
    name = task.form.parts[0]
    whole = [item[name] for item in items]
    if name == "source":
        return Writing(
            items, None, sources(loaded, whole), lambda _, json: show.AsJson() if json else show.AsLines()
        )
    facts = {"prefix": loaded.objective.prefix}
    if name == "prompt":
        return Writing(
            items, whole, facts, lambda each, json: show.AsJson() if json else show.AsText(whole, each)
        )
    replies = [""] * len(items)
    return Writing(
        items, [asked(loaded, messages) for messages in whole], facts,
        lambda each, json: show.AsJson(items, each) if json else show.AsText(replies, each),
    )  # fmt: skip


def asked(loaded: Loaded, messages: list[dict[str, str]]) -> list[int]:
    """A conversation up to where the model answers, as ids."""
    from tfcli import chat

    return chat.encode(loaded.tokenizer, messages, add_generation_prompt=True)


def start_id(loaded: Loaded) -> int | None:
    """What an encoder-decoder's decoder reads first; None: of another model."""
    return loaded.objective.start_id if loaded.model.family == "encoder_decoder" else None


def given(form: Form, options: Options) -> list[Item]:
    """What is to be read: from the options, from files, or from standard input."""
    if form is CHAT:
        return chats(options)
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
    said = show.with_bar(task.predict(loaded, items, how), len(items), "text")
    if task.together is not None and not options["--json"]:
        return task.together(list(said))
    for number, one in enumerate(said):
        task.show(one, number, options["--json"])
