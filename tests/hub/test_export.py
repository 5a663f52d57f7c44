"""Runs that leave as folders of Hugging Face's: every class that can hold one, and whatever may go wrong."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hub.made import run_of

from tfcli import choices, origin
from tfcli.compose import compose
from tfcli.errors import ConfigError, RunError
from tfcli.hub import export as exporting
from tfcli.hub import verify as checking
from tfcli.hub.export import export, holder
from tfcli.hub.verify import ours_of, rows, verify
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.trained import Byte

transformers = pytest.importorskip("transformers")

CLASSES = "head=classification head.labels=[a,b,c] objective=classification"
HELD = {  # what runs may be, and the class that holds it
    "preset=llama2": "LlamaForCausalLM",
    "preset=llama3": "LlamaForCausalLM",
    "preset=llama3 position=rope_llama3 position.original=16": "LlamaForCausalLM",
    "preset=llama3 position=rope_longrope": "LlamaForCausalLM",
    "preset=llama3 position.interleaved=true attention.bias=true ffn.bias=true": "LlamaForCausalLM",
    "preset=llama3 attention=mha size.n_kv_heads=1 head=tied": "LlamaForCausalLM",
    "preset=llama3 attention.n_kv_heads=1 ffn.d_ff=20 embedding.pad_to_multiple=64": "LlamaForCausalLM",
    "preset=llama3 embedding.vocab_size=300": "LlamaForCausalLM",
    "preset=mistral attention.rule.size=5": "MistralForCausalLM",
    "preset=gemma size.head_dim=8": "GemmaForCausalLM",
    "preset=qwen2": "Qwen2ForCausalLM",
    "preset=olmo2": "Olmo2ForCausalLM",
    "preset=gpt2": "GPT2LMHeadModel",
    "preset=gpt_neox size.n_heads=2": "GPTNeoXForCausalLM",
    "preset=bloom size.d_ff=64": "BloomForCausalLM",
    "preset=bert": "BertForMaskedLM",
    f"preset=bert {CLASSES}": "BertForSequenceClassification",
    "preset=bert head=tagging head.labels=[O,B-x,I-x] objective=tagging": "BertForTokenClassification",
    "preset=bert head=span objective=reading": "BertForQuestionAnswering",
    "preset=bert head=vector head.pool=first head.activation=tanh": "BertModel",
    "preset=bert head=vector head.normalise=true": "BertModel",
    "preset=roberta": "RobertaForMaskedLM",
    "preset=distilbert": "DistilBertForMaskedLM",
    "preset=distilbert head=span objective=reading": "DistilBertForQuestionAnswering",
    "preset=modernbert attention.local.rule.size=5": "ModernBertForMaskedLM",
    "preset=bart": "BartForConditionalGeneration",
    "preset=bart position.offset=0": "BartForConditionalGeneration",
    "preset=marian": "MarianMTModel",
    "preset=t5": "T5ForConditionalGeneration",
    "preset=t5_1_1": "T5ForConditionalGeneration",
}
REFUSED = {  # what no class holds, and what is said
    "preset=llama3 placement=sandwich": "placement=sandwich: .* nearest, Llama.*, has placement=pre$",
    "preset=gpt1": "placement=post: .* nearest, GPT2LMHeadModel, has placement=pre$",
    "preset=transformer2017": "attention.bias=false: .* nearest, MarianMTModel, has attention.bias=true$",
    "preset=transformer2017 ffn=swiglu": "^ffn=swiglu: .* nearest, MarianMTModel, has ffn=silu$",
    "preset=llama3 ffn=relu": "ffn=relu: .* nearest, LlamaForCausalLM, has ffn=swiglu$",
    "preset=llama3 position=shaw": "position=shaw: .* has position=",
    "preset=llama3 attention=local_global": "attention=local_global: .* has attention=",
    "preset=llama3 norm=batchnorm": "norm=batchnorm: .* has norm=rmsnorm",
    "preset=llama3 position.partial=0.5": "position.partial=0.5: .* has position.partial=1.0$",
    "preset=llama3 embedding=scaled": "embedding.scale=true: .* has embedding.scale=false$",
    "preset=llama3 placement=post attention.qk_norm=head": "placement=post: ",
    "preset=bert position=rope": "position=rope: .* nearest, BertForMaskedLM, has position=learned$",
    "preset=bert head=classification_mean": "head.activation=null: .* has head.activation=tanh$",
    "preset=bert head=tied objective=masked_lm": "head=tied: no class .* family=encoder has none",
    "preset=bart placement=pre": "placement=pre: .* BartForConditionalGeneration, has placement=post$",
    "preset=distilbert head=classification": "head.activation=tanh: .* has head.activation=relu$",
    "preset=t5 attention@cross_attention=mha": "cross_attention.scale=0.5: .* has cross_attention.scale=1.0$",
}


def words(text: str) -> list[str]:
    """Overrides as they are typed."""
    return text.split()


def left(folder: Path) -> list[str]:
    """What is in a folder beside the run."""
    return sorted(path.name for path in folder.iterdir() if path.name != "run")


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A run."""
    return run_of(tmp_path / "run", "preset=llama3")


# --- every class --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", HELD)
def test_what_leaves_says_the_same_there_and_when_it_comes_back(said: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", *words(said))
    written = export(run, tmp_path / "out")
    assert written.kind == HELD[said] and written.checked.left_out == "" and written.checked.largest < 1e-5
    before, after = origin.load(run), origin.load(tmp_path / "out")
    batch = rows(before.model, before.tokenizer)
    with torch.no_grad():
        mine, back = ours_of(before.model, batch), ours_of(after.model, batch)
    assert torch.equal(mine, back) or (mine - back).abs().max() < 1e-6
    assert after.labels == before.labels


def test_prompts_that_see_themselves_both_ways_are_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "objective=prefix_lm")
    with pytest.raises(ConfigError, match="^objective=prefix_lm: prompts see themselves both ways"):
        export(run, tmp_path / "out")
    assert left(tmp_path) == []


def test_an_encoder_decoder_without_a_mask_token_comes_back(tmp_path: Path) -> None:
    choices = ["preset=bart", "objective=seq2seq", "objective.start=eos"]
    run = run_of(tmp_path / "run", *choices, tokenizer=Byte().train())
    export(run, tmp_path / "out")
    back = origin.load(tmp_path / "out")
    assert back.config.choices.objective == "seq2seq" and back.objective.start_id == back.tokenizer.eos_id


@pytest.mark.parametrize("role", ["pad", "bos", "eos"])
def test_a_start_token_of_another_role_comes_back(role: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "preset=marian", f"objective.start={role}")
    export(run, tmp_path / "out")
    assert origin.load(tmp_path / "out").config.objective.start == role


def test_every_preset_is_held_or_refused() -> None:
    said = " ".join([*HELD, *REFUSED])
    presets = {path.stem for path in (choices.config_dir() / "preset").glob("*.yaml")}
    assert presets == {word.removeprefix("preset=") for word in said.split() if word.startswith("preset=")}


@pytest.mark.parametrize("said", REFUSED)
def test_what_no_class_holds_is_refused_by_the_choice(said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=REFUSED[said]) as error:
        holder(compose("train", ["size.d_model=16", "size.n_heads=4", "size.head_dim=null", *words(said)]))
    assert "\n" not in str(error.value)


def test_a_preset_is_held_by_its_own_architecture() -> None:
    for preset in ("mistral", "qwen2"):  # with nothing of theirs it could be Llama's as well
        said = [f"preset={preset}", "attention=gqa", "position=rope", "norm=rmsnorm"]
        config = compose("train", said)
        with_theirs = holder(config).architecture.model_type
        assert with_theirs == ("mistral" if preset == "mistral" else "llama")


# --- what is written ----------------------------------------------------------------------------------------


def said_in(path: Path) -> dict[str, Any]:
    """A JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_folder_has_what_others_look_for(llama: Path, tmp_path: Path) -> None:
    export(llama, tmp_path / "out")
    names = ["README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
             "tokenizer_config.json"]  # fmt: skip
    assert left(tmp_path / "out") == names
    config = said_in(tmp_path / "out" / "config.json")
    assert (config["architectures"], config["dtype"]) == (["LlamaForCausalLM"], "float32")
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, 2, 0)
    assert said_in(tmp_path / "out" / "generation_config.json") == {
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip


@pytest.mark.parametrize(("preset", "start"), [("t5", 0), ("bart", 2), ("marian", 0)])
def test_an_encoder_decoder_tells_its_start_token(preset: str, start: int, tmp_path: Path) -> None:
    export(run_of(tmp_path / "run", f"preset={preset}"), tmp_path / "out")
    for name in ("config.json", "generation_config.json"):
        assert said_in(tmp_path / "out" / name)["decoder_start_token_id"] == start
    assert origin.load(tmp_path / "out").objective.start_id == start


def test_classes_keep_their_names(tmp_path: Path) -> None:
    said = "preset=bert head=classification head.labels=[spam,ham] objective=classification"
    export(run_of(tmp_path / "run", *words(said)), tmp_path / "out")
    config = said_in(tmp_path / "out" / "config.json")
    assert config["id2label"] == {"0": "spam", "1": "ham"} and config["label2id"] == {"spam": 0, "ham": 1}
    assert not (tmp_path / "out" / "generation_config.json").exists()


def test_how_an_imported_folder_writes_texts_leaves_with_it(llama: Path, tmp_path: Path) -> None:
    export(llama, tmp_path / "out")
    path = tmp_path / "out" / "generation_config.json"
    path.write_text(json.dumps({"do_sample": True, "temperature": 0.6, "eos_token_id": [2, 5]}))
    export(tmp_path / "out", tmp_path / "again")
    said = said_in(tmp_path / "again" / "generation_config.json")
    assert said["temperature"] == 0.6 and said["eos_token_id"] == [2, 5] and said["bos_token_id"] == 1


def test_shards_are_no_larger_than_was_said(llama: Path, tmp_path: Path) -> None:
    export(llama, tmp_path / "out", shard=20_000)
    parts = sorted((tmp_path / "out").glob("model-*.safetensors"))
    index = said_in(tmp_path / "out" / "model.safetensors.index.json")
    assert len(parts) > 2 and {part.name for part in parts} == set(index["weight_map"].values())
    assert sum(part.stat().st_size for part in parts) >= index["metadata"]["total_size"]
    assert all(part.stat().st_size < 20_000 + 4_000 for part in parts)  # and a header


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rounded_weights_are_compared_with_rounded_weights(dtype: str, llama: Path, tmp_path: Path) -> None:
    written = export(llama, tmp_path / "out", dtype=dtype)
    assert written.checked.largest < 1e-5  # of what was not rounded it is 1e-2
    from safetensors.torch import load_file

    held = load_file(tmp_path / "out" / "model.safetensors")
    assert {t.dtype for t in held.values()} == {getattr(torch, dtype)}
    assert said_in(tmp_path / "out" / "config.json")["dtype"] == dtype


def test_a_number_beyond_float16_is_refused(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loud(*args: Any) -> Any:
        loaded = origin.load(*args)
        loaded.model.embedding.table.weight.data[0, 0] = 1e5
        return loaded

    monkeypatch.setattr(exporting, "load", loud)
    with pytest.raises(ConfigError, match=r"float16: model.embed_tokens.weight has numbers beyond 65504"):
        export(llama, tmp_path / "out", dtype="float16")
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("said", "head", "tail"),
    [("preset=llama3", [1], []), ("preset=llama3 data.bos=false", [], []), ("preset=bert", [1], [2]),
     ("preset=t5 data.bos=false", [], [2])],
)  # fmt: skip
def test_texts_begin_and_end_there_as_in_training(said: str, head: list, tail: list, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", *words(said))
    export(run, tmp_path / "out")
    with checking.silent():
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
        ids = theirs("as <eos> it is")["input_ids"]
        assert ("token_type_ids" in theirs("a")) == ("bert" in said)
    assert ids == [*head, *origin.load(run).tokenizer.encode("as <eos> it is"), *tail]


def test_pooled_vectors_leave_as_sentence_transformers_has_them(tmp_path: Path) -> None:
    said = "preset=bert head=vector head.pool=max head.normalise=true"
    export(run_of(tmp_path / "run", *words(said)), tmp_path / "out")
    modules = json.loads((tmp_path / "out" / "modules.json").read_text())
    assert [module["type"].rpartition(".")[2] for module in modules] == [
        "Transformer",
        "Pooling",
        "Normalize",
    ]
    head = origin.load(tmp_path / "out").config.head
    assert (head.pool, head.activation, head.normalise) == ("max", None, True)


def test_others_may_read_what_new_files_let_them_read(llama: Path, tmp_path: Path) -> None:
    export(llama, tmp_path / "out")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file").write_text("")
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "new").stat().st_mode
    modes = {path.stat().st_mode for path in (tmp_path / "out").iterdir()}
    assert modes == {(tmp_path / "new" / "file").stat().st_mode}


def test_the_card_tells_what_is_known(tmp_path: Path) -> None:
    import yaml

    run = run_of(tmp_path / "run", "preset=llama3", f"data.path={tmp_path / 'trees.txt'}")
    export(run, tmp_path / "out", command="tf-export run out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    front = yaml.safe_load(card.split("---")[1])
    assert front["library_name"] == "transformers" and front["pipeline_tag"] == "text-generation"
    assert "license" not in front
    for fact in ("| steps | `7` |", "| tokens | `1,234` |", "| validation loss | `2.0000` |", "`7.389`",
                 "| attention | `gqa` |", "`trees.txt`", "LlamaForCausalLM.from_pretrained",
                 "tf-export run"):  # fmt: skip
        assert fact in card
    assert str(tmp_path) not in card  # where things lie here is no one else's business


def test_the_card_tells_of_the_heads_that_there_are(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "preset=gpt2", "size.n_kv_heads=1", "head.tied=true")
    export(run, tmp_path / "out")
    card = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    assert "| n_kv_heads | `4` |" in card and "| with | `head.tied=true` |" in card


def test_the_card_of_an_import_tells_of_no_training(llama: Path, tmp_path: Path) -> None:
    export(llama, tmp_path / "out")
    export(tmp_path / "out", tmp_path / "again")
    card = (tmp_path / "again" / "README.md").read_text(encoding="utf-8")
    assert "## Training" not in card and "optimizer" not in card


# --- whatever may go wrong ----------------------------------------------------------------------------------


def test_what_is_there_stays_as_it_is(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    for target in (tmp_path / "out", tmp_path / "out" / "mine"):
        with pytest.raises(ConfigError, match="is there already"):
            export(llama, target)
    assert left(tmp_path / "out") == ["mine"]
    (tmp_path / "out" / "mine").unlink()
    export(llama, tmp_path / "out")  # an empty folder is one to write into
    assert "config.json" in left(tmp_path / "out")


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_nothing_is_left_of_what_was_not_finished(
    error: BaseException, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Tokenizer, folder: Path) -> None:
        assert (Path(folder) / "model.safetensors").exists()
        raise error

    monkeypatch.setattr(Tokenizer, "save", fails)
    wanted = RunError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(wanted, match="No space left" if wanted is RunError else None):
        export(llama, tmp_path / "new" / "deep" / "out")
    assert left(tmp_path) == []


def test_a_folder_that_says_something_else_is_removed(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = exporting.save

    def wrong(mine: list, *args: Any) -> None:
        with torch.no_grad():
            view = mine[1].pieces[0].view
            view.add_(0.05)
            saved(mine, *args)
            view.sub_(0.05)

    monkeypatch.setattr(exporting, "save", wrong)
    with pytest.raises(RunError, match=r"scores of what was written differ by .*; nothing is left"):
        export(llama, tmp_path / "out")
    assert left(tmp_path) == []


def test_without_transformers_it_is_said_that_nothing_was_checked(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "installed", lambda: False)
    assert export(llama, tmp_path / "out").checked == (None, "transformers is not installed")


def changed(path: Path, **fields: Any) -> None:
    """Writes fields of a JSON file anew."""
    path.write_text(json.dumps({**said_in(path), **fields}))


def without_ends(text: str) -> str:
    """A tokenizer.json that puts nothing around texts."""
    return json.dumps({**json.loads(text), "post_processor": None})


def exchanged(text: str) -> str:
    """A tokenizer.json in which two tokens have each other's id."""
    said = json.loads(text)
    ids = said["model"]["vocab"]
    ids["a"], ids["b"] = ids["b"], ids["a"]
    return json.dumps(said)


TURNED = {"rope_type": "default", "rope_theta": 9e5}
FAULTS: dict[str, dict[str, Any] | Callable[[str], str]] = {  # in a folder's config.json, or its tokenizer
    "rope": {"rope_parameters": TURNED},
    "eps": {"rms_norm_eps": 1e-2},
    "activation": {"hidden_act": "gelu"},
    "heads": {"num_attention_heads": 8},
    "layers": {"num_hidden_layers": 2},
    "shape": {"vocab_size": 200},
    "class": {"model_type": "no such one"},
    "ends": without_ends,
    "tokens": exchanged,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_check_bites(fault: str, llama: Path, tmp_path: Path) -> None:
    export(llama, tmp_path / "out")
    loaded = origin.load(llama)
    tokenizer = exporting.with_ends(loaded)
    assert verify(tmp_path / "out", "LlamaForCausalLM", loaded.model, tokenizer).largest < 1e-5
    how, tokens = FAULTS[fault], tmp_path / "out" / "tokenizer.json"
    if isinstance(how, dict):
        changed(tmp_path / "out" / "config.json", **how)
    else:
        tokens.write_text(how(tokens.read_text()))
    with pytest.raises(RunError):
        verify(tmp_path / "out", "LlamaForCausalLM", loaded.model, tokenizer)


def test_a_window_is_checked_in_rows_that_it_does_not_see(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "preset=mistral", "attention.rule.size=30", "size.context=100")
    export(run, tmp_path / "out")
    changed(tmp_path / "out" / "config.json", sliding_window=29)
    loaded = origin.load(run)
    with pytest.raises(RunError, match="differ by"):
        verify(tmp_path / "out", "MistralForCausalLM", loaded.model, exporting.with_ends(loaded))


def test_transformers_prints_nothing(llama: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    export(llama, tmp_path / "out")
    assert capfd.readouterr() == ("", "")
