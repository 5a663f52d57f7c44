"""What the files beside a vocabulary say of it: roles, class, added tokens, chat template."""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from tfcli.errors import ConfigError, one_line

ROLES = ("pad", "bos", "eos", "unk", "cls", "sep", "mask")
NAMES = {  # what files that do not say it call their special tokens, the likeliest first
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>"),
    "bos": ("<bos>", "<s>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "eos": ("<eos>", "</s>", "<|end_of_text|>", "<|endoftext|>"),
    "unk": ("<unk>", "[UNK]"),
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
}
KEPT = (  # of an imported tokenizer_config.json, what stays true
    "model_max_length", "padding_side", "truncation_side", "model_input_names",
    "clean_up_tokenization_spaces", "source_lang", "target_lang",
)  # fmt: skip
AS_TEXT = "special_tokens_are_text"
GENERIC = {"", "PreTrained", "TokenizersBackend", "PythonBackend"}
KINDS = {  # of vocabularies, by the class of tokenizer_config.json and the model_type of config.json
    "t5": "t5", "mt5": "t5", "umt5": "t5", "longt5": "t5", "switch_transformers": "t5",
    "llama": "llama", "codellama": "llama", "mistral": "llama", "mixtral": "llama",
    "gemma": "gemma", "marian": "marian", "xlmroberta": "xlmroberta",
    "gpt2": "gpt2", "gpt_neo": "gpt2", "gptneox": "gpt2", "gpt_neox": "gpt2", "opt": "gpt2",
    "roberta": "roberta", "bart": "roberta", "longformer": "roberta", "led": "roberta", "qwen2": "qwen2",
    "bert": "bert", "distilbert": "bert", "electra": "bert", "mobilebert": "bert",
}  # fmt: skip
SETTLED = {"mistral", "mixtral", "modernbert", "olmo2", "qwen2", "umt5"}  # whatever class these name
NEOX = {"gptneox", "falconmamba", "mamba", "mamba2", "mpt", "olmo", "olmoe", "rwkv", "xlstm"}
ENDS = {  # whether the kind puts BOS before and EOS after a text
    "t5": (False, True), "marian": (False, True), "llama": (True, False), "gemma": (True, False),
    "bert": (True, True), "roberta": (True, True), "xlmroberta": (True, True),
}  # fmt: skip
HEED_FLAGS = {"llama", "gemma", "gpt2", "qwen2"}  # add_bos_token and add_eos_token


def described(folder: Path) -> dict[str, Any]:
    """special_tokens_map.json and tokenizer_config.json of a folder; what would run code is refused."""
    said: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        said |= read_json(folder / name)
    if said.get("auto_map"):
        raise ConfigError(
            f"{folder / 'tokenizer_config.json'}: auto_map={json.dumps(said['auto_map'])}: "
            "asks for code of the folder to be run, which never is"
        )
    return said


def read_json(path: Path) -> dict[str, Any]:
    """An object of a JSON file; {} if there is no such file."""
    text = text_if_any(path)
    try:
        found = {} if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read ({one_line(error)})") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: must be an object, and is a {type(found).__name__}")
    return found


def text_if_any(path: Path) -> str | None:
    """The text of a file, less a byte order mark; None if there is none. No pipe is waited for."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: cannot be read (it is no regular file)")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({one_line(error)})") from None


def find_special(backend: Backend, said: dict[str, Any] | None = None) -> dict[str, str]:
    """Role to token, e.g. {"eos": "</s>"}: as said, else by the usual names.

    A vocabulary that has [CLS] and [SEP] only (BERT's) begins and ends documents with them.
    """
    said, found = said or {}, {}
    for role in ROLES:
        names = NAMES[role]
        if f"{role}_token" in said:
            name = content(said[f"{role}_token"], f"{role}_token")
            names = () if name is None else (name,)
        known = [name for name in names if backend.token_to_id(name) is not None]
        if known:
            found[role] = known[0]
    for role, stand_in in (("bos", "cls"), ("eos", "sep")):
        if role not in found and stand_in in found:
            found[role] = found[stand_in]
    return found


def content(token: Any, key: str) -> str | None:
    """The text of a token, which files give as it is or with its properties."""
    text = token.get("content") if isinstance(token, dict) else token
    if text is None or isinstance(text, str):
        return text
    raise ConfigError(f"tokenizer_config.json: {key}={json.dumps(token)[:80]}: must be the text of a token")


def kind_of(folder: Path, said: dict[str, Any]) -> str:
    """Which kind of vocabulary a folder's files say that it has; "" if they do not say it.

    A name that is not known is given as it is.
    """
    name = _family(folder, said)
    return KINDS.get(name.lower().replace("-", ""), name)


def input_names(folder: Path, said: dict[str, Any], *, by_model: bool = True) -> list[str]:
    """What a model reads besides ids: BERT is told of two texts, and few others are."""
    segments = _family(folder, said, by_model).lower() in ("bert", "electra", "mobilebert")
    return said.get("model_input_names") or ["input_ids", *["token_type_ids"] * segments, "attention_mask"]


def _family(folder: Path, said: dict[str, Any], by_model: bool = True) -> str:
    config = read_json(folder / "config.json") if by_model else {}
    names = (said.get("tokenizer_class"), config.get("tokenizer_class"), config.get("model_type"))
    words = (n.removesuffix("Fast").removesuffix("Tokenizer") for n in names if isinstance(n, str))
    return next((word for word in words if word not in GENERIC), "")


def class_of(folder: Path, said: dict[str, Any]) -> str:
    """The kind of class with which `transformers` 5.24 reads a tokenizer.json: the one that the files name.

    It heeds no such name for models that it has settled itself, and goes by the model where none is named.
    """
    config = read_json(folder / "config.json")
    model = config.get("model_type")
    if model in SETTLED:
        return ""
    named = said.get("tokenizer_class") or config.get("tokenizer_class")
    name = named.removesuffix("Fast").removesuffix("Tokenizer") if isinstance(named, str) else model
    name = name.lower().replace("-", "").replace("_", "") if isinstance(name, str) else ""
    return "gptneox" if name in NEOX else KINDS.get(name, name)


def ends_of(kind: str, said: dict[str, Any]) -> tuple[bool, bool]:
    """Whether BOS stands before and EOS after a text, where no post-processor says it."""
    usual = ENDS.get(kind, (False, False))
    if kind not in HEED_FLAGS:
        return usual
    bos, eos = (said.get(f"add_{role}_token") for role in ("bos", "eos"))
    return usual[0] if bos is None else bool(bos), usual[1] if eos is None else bool(eos)


def special_is_text(said: dict[str, Any]) -> bool:
    """Whether text that spells a special token is text; our own word for it stands beside a template."""
    return bool(said.get(AS_TEXT, said.get("split_special_tokens", True)))


def chat_template(folder: Path, said: dict[str, Any]) -> str | None:
    """The template of conversations: chat_template.jinja, else what tokenizer_config.json has as default."""
    text = text_if_any(folder / "chat_template.jinja")
    if text is not None:
        return text
    template = said.get("chat_template")
    if isinstance(template, list) and all(isinstance(one, dict) for one in template):
        template = {one.get("name"): one.get("template") for one in template}
    if isinstance(template, dict):
        template = template.get("default")
    if template is None or isinstance(template, str):
        return template
    raise ConfigError(f"{folder / 'tokenizer_config.json'}: chat_template: must be text, or a list of them")


def added_tokens(folder: Path, said: dict[str, Any]) -> list[tuple[int, AddedToken]]:
    """The tokens that files add to a vocabulary, with their ids, in the order of these."""
    where = folder / "tokenizer_config.json"
    special = {content(said.get(f"{role}_token"), f"{role}_token") for role in ROLES}
    more = said.get("additional_special_tokens") or []
    special |= {content(token, "additional_special_tokens") for token in more}
    found: dict[int, AddedToken] = {}
    try:
        for text, i in read_json(folder / "added_tokens.json").items():
            found[int(i)] = AddedToken(text, special=text in special, normalized=text not in special)
        for i, token in (said.get("added_tokens_decoder") or {}).items():
            found[int(i)] = AddedToken(**{name: of for name, of in token.items() if name != "__type"})
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{where}: its added tokens cannot be read ({one_line(error)})") from None
    return sorted(found.items())


def add(backend: Backend, tokens: list[tuple[int, AddedToken]], where: Path) -> None:
    """Gives a backend these tokens, each of which must get the id that is said."""
    for i, token in tokens:
        (backend.add_special_tokens if token.special else backend.add_tokens)([token])
        if (has := backend.token_to_id(token.content)) != i:
            raise ConfigError(f"{where}: the added token '{token.content}' has id {i}, and would get {has}")
