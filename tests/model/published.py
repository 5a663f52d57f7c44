"""Tiny random models of `transformers` and ours with their weights: what both say must be the same.

Weights are drawn with a deviation of 0.15 and random gains and biases, so that nothing hides behind a 0 or a
1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from laws import cases
from torch import Tensor, nn

V, D, H, FF, L, CONTEXT = cases.VOCAB, 16, 4, 24, 3, 32
SIZE = (f"size.n_layers={L}", f"size.d_ff={FF}", f"size.n_heads={H}", f"size.context={CONTEXT}")

Names = Iterable[tuple[str, str]]  # our name, theirs; of one of ours, several of theirs are joined


def shaken(model: nn.Module, seed: int = 3) -> nn.Module:
    """A model of theirs with random numbers everywhere."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(drawn * 0.15 if parameter.ndim > 1 else 1 + 0.3 * drawn)
        for name, buffer in model.named_buffers():
            if name.endswith("final_logits_bias"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator))
    return model.eval()


def filled(model: nn.Module, theirs: nn.Module, names: dict[str, tuple[str, ...]]) -> nn.Module:
    """Our model with their weights; every tensor of ours once."""
    have = theirs.state_dict()
    with torch.no_grad():
        for name, tensor in model.state_dict(keep_vars=True).items():
            found = [have[n] for n in names[name]]
            tensor.copy_((torch.cat(found) if len(found) > 1 else found[0]).reshape(tensor.shape))
    return model.eval()


def layer_names(
    ours: str, branches: Iterable[tuple[str, str, tuple[str, ...]]], norms: Iterable[tuple[str, str]]
) -> dict[str, tuple[str, ...]]:
    """Names of one layer, weights and biases. branches: ours, their beginning, their endings to join."""
    names = {}
    for own, start, ends in branches:
        for kind in ("weight", "bias"):
            names[f"{ours}.{own}.{kind}"] = tuple(f"{start}{end}.{kind}" for end in ends)
    for own, other in norms:
        names[f"{ours}.{own}.gain"] = (f"{other}.weight",)
        names[f"{ours}.{own}.bias"] = (f"{other}.bias",)
    return names


QKV = ("q", "k", "v")


def bert_like(start: str, layer: str, attention: str, qkv: tuple[str, ...], rest: tuple[str, ...]) -> dict:
    """Names of a stack of BERT's layers. rest: attention's out and norm, up, down, and the last norm."""
    names, (out, norm, up, down, last) = {}, rest
    for i in range(L):
        at = f"{start}.{layer}.{i}."
        names |= layer_names(
            f"stack.layers.{i}",
            [
                ("attention.branch.qkv", at + attention, qkv),
                ("attention.branch.out", at, (out,)),
                ("ffn.branch.up", at, (up,)),
                ("ffn.branch.down", at, (down,)),
            ],
            [("attention.norms.0", at + norm), ("ffn.norms.0", at + last)],
        )
    return names


BERT = {"vocab_size": V, "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": H,
        "intermediate_size": FF, "max_position_embeddings": CONTEXT}  # fmt: skip


def bert_body(start: str = "bert.") -> dict[str, tuple[str, ...]]:
    """Names of all but the head."""
    e = start + "embeddings."
    return bert_like(start + "encoder", "layer", "attention.self.", ("query", "key", "value"), (
        "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense",
        "output.LayerNorm")) | {
        "embedding.table.weight": (e + "word_embeddings.weight",),
        "embedding.segments.weight": (e + "token_type_embeddings.weight",),
        "embedding.norm.gain": (e + "LayerNorm.weight",),
        "embedding.norm.bias": (e + "LayerNorm.bias",),
        "stack.positions.0.table.weight": (e + "position_embeddings.weight",),
    }  # fmt: skip


def bert() -> tuple[nn.Module, nn.Module]:
    from transformers import BertConfig, BertForMaskedLM

    theirs, c = shaken(BertForMaskedLM(BertConfig(**BERT))), "cls.predictions."
    names = bert_body() | {
        "head.dense.weight": (c + "transform.dense.weight",),
        "head.dense.bias": (c + "transform.dense.bias",),
        "head.norm.gain": (c + "transform.LayerNorm.weight",),
        "head.norm.bias": (c + "transform.LayerNorm.bias",),
        "head.map.weight": (c + "decoder.weight",),
        "head.map.bias": (c + "bias",),
    }
    return filled(cases.model_of({"preset": "bert"}, *SIZE), theirs, names), theirs


def roberta() -> tuple[nn.Module, nn.Module]:
    from transformers import RobertaConfig, RobertaForMaskedLM

    theirs = shaken(RobertaForMaskedLM(RobertaConfig(
        **BERT | {"max_position_embeddings": CONTEXT + 2}, type_vocab_size=1, layer_norm_eps=1e-5,
        pad_token_id=1)))  # fmt: skip
    names = bert_body("roberta.") | {
        "head.dense.weight": ("lm_head.dense.weight",),
        "head.dense.bias": ("lm_head.dense.bias",),
        "head.norm.gain": ("lm_head.layer_norm.weight",),
        "head.norm.bias": ("lm_head.layer_norm.bias",),
        "head.map.weight": ("lm_head.decoder.weight",),
        "head.map.bias": ("lm_head.bias",),
    }
    return filled(cases.model_of({"preset": "roberta"}, *SIZE), theirs, names), theirs


DISTILBERT = {"vocab_size": V, "dim": D, "n_layers": L, "n_heads": H, "hidden_dim": FF,
              "max_position_embeddings": CONTEXT}  # fmt: skip


def distilbert_body() -> dict[str, tuple[str, ...]]:
    """Names of all but the head."""
    e = "distilbert.embeddings."
    return bert_like("distilbert.transformer", "layer", "attention.", ("q_lin", "k_lin", "v_lin"), (
        "attention.out_lin", "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm")) | {
        "embedding.table.weight": (e + "word_embeddings.weight",),
        "embedding.norm.gain": (e + "LayerNorm.weight",),
        "embedding.norm.bias": (e + "LayerNorm.bias",),
        "stack.positions.0.table.weight": (e + "position_embeddings.weight",),
    }  # fmt: skip


def distilbert() -> tuple[nn.Module, nn.Module]:
    from transformers import DistilBertConfig, DistilBertForMaskedLM

    theirs = shaken(DistilBertForMaskedLM(DistilBertConfig(**DISTILBERT)))
    names = distilbert_body() | {
        "head.dense.weight": ("vocab_transform.weight",),
        "head.dense.bias": ("vocab_transform.bias",),
        "head.norm.gain": ("vocab_layer_norm.weight",),
        "head.norm.bias": ("vocab_layer_norm.bias",),
        "head.map.weight": ("vocab_projector.weight",),
        "head.map.bias": ("vocab_projector.bias",),
    }
    return filled(cases.model_of({"preset": "distilbert"}, *SIZE), theirs, names), theirs


# local_attention=8 is 4 tokens on each side
MODERNBERT = BERT | {"local_attention": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
                     "cls_token_id": 1, "sep_token_id": 2, "attn_implementation": "eager"}  # fmt: skip


def modernbert_body() -> dict[str, tuple[str, ...]]:
    """Names of all but the head's own map."""
    names = {
        "embedding.table.weight": ("model.embeddings.tok_embeddings.weight",),
        "embedding.norm.gain": ("model.embeddings.norm.weight",),
        "stack.final_norm.gain": ("model.final_norm.weight",),
        "head.dense.weight": ("head.dense.weight",),
        "head.norm.gain": ("head.norm.weight",),
    }
    for i in range(L):
        at, own = f"model.layers.{i}.", f"stack.layers.{i}."
        names |= {
            own + "attention.branch.qkv.weight": (at + "attn.Wqkv.weight",),
            own + "attention.branch.out.weight": (at + "attn.Wo.weight",),
            own + "attention.norms.0.gain": (at + "attn_norm.weight",),
            own + "ffn.norms.0.gain": (at + "mlp_norm.weight",),
            own + "ffn.branch.gate_up.weight": (at + "mlp.Wi.weight",),
            own + "ffn.branch.down.weight": (at + "mlp.Wo.weight",),
        }
    return names


def modernbert() -> tuple[nn.Module, nn.Module]:
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    theirs = shaken(ModernBertForMaskedLM(ModernBertConfig(**MODERNBERT)))
    names = modernbert_body() | {"head.map.weight": ("decoder.weight",), "head.map.bias": ("decoder.bias",)}
    return filled(cases.model_of({"preset": "modernbert"}, *SIZE), theirs, names), theirs


def t5(gated: bool = False) -> tuple[nn.Module, nn.Module]:
    from transformers import T5Config, T5ForConditionalGeneration

    theirs = T5ForConditionalGeneration(T5Config(
        vocab_size=V, d_model=D, d_kv=6, d_ff=FF, num_layers=L, num_heads=H, dropout_rate=0.0,
        relative_attention_num_buckets=8, relative_attention_max_distance=10, decoder_start_token_id=0,
        feed_forward_proj="gated-gelu" if gated else "relu", tie_word_embeddings=not gated))  # fmt: skip
    if gated:
        theirs.lm_head.weight = nn.Parameter(theirs.lm_head.weight.detach().clone())
    shaken(theirs)
    names = {
        "embedding.table.weight": ("shared.weight",),
        "source_embedding.table.weight": ("shared.weight",),
        "head.map.weight": ("lm_head.weight" if gated else "shared.weight",),
    }
    for own, their in (("encoder", "encoder"), ("stack", "decoder")):
        bias = f"{their}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        names[f"{own}.positions.0.table.weight"] = (bias,)
        names[f"{own}.final_norm.gain"] = (f"{their}.final_layer_norm.weight",)
        for i in range(L):
            places = [("attention", "SelfAttention")]
            places += [("cross_attention", "EncDecAttention")] if own == "stack" else []
            for j, (place, kind) in enumerate(places):
                at, ours = f"{their}.block.{i}.layer.{j}.", f"{own}.layers.{i}.{place}."
                names[ours + "branch.qkv.weight"] = tuple(f"{at}{kind}.{x}.weight" for x in QKV)
                names[ours + "branch.out.weight"] = (f"{at}{kind}.o.weight",)
                names[ours + "norms.0.gain"] = (at + "layer_norm.weight",)
            at, ours = f"{their}.block.{i}.layer.{len(places)}.", f"{own}.layers.{i}.ffn."
            dense = at + "DenseReluDense."
            names[ours + "norms.0.gain"] = (at + "layer_norm.weight",)
            names[ours + "branch.down.weight"] = (dense + "wo.weight",)
            if gated:
                names[ours + "branch.gate_up.weight"] = (dense + "wi_0.weight", dense + "wi_1.weight")
            else:
                names[ours + "branch.up.weight"] = (dense + "wi.weight",)
    case = {"preset": "t5_1_1" if gated else "t5"}
    return filled(cases.model_of(case, *SIZE, "size.head_dim=6"), theirs, names), theirs


def bart_like(preset: str, theirs: nn.Module, tables: Callable[[str], dict]) -> tuple[nn.Module, nn.Module]:
    """tables: what a side has beside its layers, by our name of it and theirs."""
    names = {
        "embedding.table.weight": ("model.shared.weight",),
        "source_embedding.table.weight": ("model.shared.weight",),
        "head.map.weight": ("lm_head.weight",),
        "head.final_logits_bias": ("final_logits_bias",),
    }
    for own, their in (("encoder", "encoder"), ("stack", "decoder")):
        names |= tables(own)
        for i in range(L):
            at, ours = f"model.{their}.layers.{i}.", f"{own}.layers.{i}"
            places = [("attention", "self_attn", "self_attn_layer_norm")]
            if own == "stack":
                places += [("cross_attention", "encoder_attn", "encoder_attn_layer_norm")]
            branches = [("ffn.branch.up", at, ("fc1",)), ("ffn.branch.down", at, ("fc2",))]
            norms = [("ffn.norms.0", at + "final_layer_norm")]
            for place, kind, norm in places:
                branches.append((f"{place}.branch.qkv", f"{at}{kind}.", ("q_proj", "k_proj", "v_proj")))
                branches.append((f"{place}.branch.out", f"{at}{kind}.", ("out_proj",)))
                norms.append((f"{place}.norms.0", at + norm))
            names |= layer_names(ours, branches, norms)
    return filled(cases.model_of({"preset": preset}, *SIZE), theirs, names), theirs


def common(**more: object) -> dict:
    """The settings that BART and Marian share."""
    return {
        "vocab_size": V, "d_model": D, "encoder_layers": L, "decoder_layers": L, "encoder_ffn_dim": FF,
        "decoder_ffn_dim": FF, "encoder_attention_heads": H, "decoder_attention_heads": H,
        "max_position_embeddings": CONTEXT, **more}  # fmt: skip


def bart() -> tuple[nn.Module, nn.Module]:
    from transformers import BartConfig, BartForConditionalGeneration

    theirs = shaken(BartForConditionalGeneration(BartConfig(**common(
        pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2,
        forced_eos_token_id=None))))  # fmt: skip

    def tables(side: str) -> dict:
        own, their = ("source_embedding", "encoder") if side == "encoder" else ("embedding", "decoder")
        return {
            f"{own}.norm.gain": (f"model.{their}.layernorm_embedding.weight",),
            f"{own}.norm.bias": (f"model.{their}.layernorm_embedding.bias",),
            f"{side}.positions.0.table.weight": (f"model.{their}.embed_positions.weight",),
        }

    return bart_like("bart", theirs, tables)


def marian() -> tuple[nn.Module, nn.Module]:
    from transformers import MarianConfig, MarianMTModel

    theirs = shaken(MarianMTModel(MarianConfig(**common(
        activation_function="swish", scale_embedding=True, pad_token_id=V - 1, eos_token_id=0,
        decoder_start_token_id=V - 1, forced_eos_token_id=None))))  # fmt: skip
    fixed = MarianMTModel(theirs.config).state_dict()
    with torch.no_grad():  # the waves are parameters there, which nobody trains
        for side in ("encoder", "decoder"):
            name = f"model.{side}.embed_positions.weight"
            theirs.state_dict()[name].copy_(fixed[name])
    return bart_like("marian", theirs, lambda side: {})


def ragged(rows: int, width: int, lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, their attention mask (1: there), and their positions, padded on the right."""
    tokens, places = cases.ids(rows, width), torch.arange(width).expand(rows, -1)
    there = places < torch.tensor(lengths)[:, None]
    return tokens, there.long(), places.masked_fill(~there, -1)
