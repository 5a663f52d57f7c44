"""Every law is seen to fail on a fault that is planted by hand: a law that cannot fail proves nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from laws import cases, laws
from torch import Tensor, nn

from tfcli.batch import PAD, Batch
from tfcli.model import attend, single, visibility
from tfcli.model.attention import View
from tfcli.model.cache import Cache, WindowCache
from tfcli.model.family.decoder import Decoder
from tfcli.model.position.rope import Rope
from tfcli.model.stack import Stack
from tfcli.model.state import State

Patch = pytest.MonkeyPatch


def restart_positions(patch: Patch) -> None:
    """Every decoding step stands at position 0 again."""
    real = State.advance
    patch.setattr(State, "advance", lambda *a: real(*a)._replace(q_pos=torch.zeros(1, 1, dtype=torch.long)))
    turn = single.Glances.rotation
    patch.setattr(single.Glances, "rotation", lambda self, place: turn(self, 0))


def forget_the_oldest(patch: Patch) -> None:
    """The cache hands out one time step too few."""
    real = Cache.upcoming
    patch.setattr(Cache, "upcoming", lambda self, n: real(self, n) - (len(self) > 2))

    def recall(self: Cache, new: Tensor, real: Callable = Cache.recall) -> Tensor:
        had = len(self)
        return real(self, new)[:, had > 2 :]

    def recall_one(self: Cache, new: Tensor, real: Callable = Cache.recall_one) -> Tensor:
        had = len(self)
        return real(self, new)[had > 2 :]

    patch.setattr(Cache, "recall", recall)
    patch.setattr(Cache, "recall_one", recall_one)


def keep_the_window_two_short(patch: Patch) -> None:
    real = WindowCache.__init__
    patch.setattr(WindowCache, "__init__", lambda self, reach: real(self, reach - 2))


def see_the_next_token(patch: Patch) -> None:
    """Causality is off by one."""
    patch.setattr(visibility.Causal, "__call__", lambda self, q, k: k <= q + 1)
    patch.setattr(visibility.Causal, "covers", lambda self, n: False)


def show_the_padding(patch: Patch) -> None:
    """Padding is treated as a token that everybody sees, with whatever id stands there."""
    real = visibility.visible

    def visible(rules: tuple, q_pos: Tensor, k_pos: Tensor, *rest: Tensor | None) -> Tensor:
        return real(rules, q_pos, k_pos, *rest) | (k_pos == PAD)[:, None, :]

    patch.setattr("tfcli.model.attention.visible", visible)
    patch.setattr("tfcli.model.family.PAD", PAD - 1)  # so that ids in padding are looked up


def forget_which_document(patch: Patch) -> None:
    real = visibility.visible
    patch.setattr("tfcli.model.attention.visible", lambda rules, q, k, *rest: real(rules, q, k))


def number_padded_rows_from_their_padding(patch: Patch) -> None:
    """A left-padded row starts at the position of its first place, not at 0."""
    real = State.advance

    def advance(self: State, ids: Tensor, present: Tensor | None) -> object:
        this = real(self, ids, present)
        if present is not None:
            places = torch.arange(ids.shape[1]).expand_as(ids)
            self.positions = torch.where(present, places, PAD)
            return this._replace(q_pos=self.positions, k_pos=self.positions)
        return this

    patch.setattr(State, "advance", advance)


def leave_the_cache_in_its_old_order(patch: Patch) -> None:
    patch.setattr(
        Cache,
        "reorder",
        lambda self, rows: setattr(self, "room", self.room[torch.zeros_like(rows)]),
    )


def cut_a_gradient(patch: Patch) -> None:
    """One branch hands on no gradient."""
    from tfcli.model.ffn.gated import Gated

    real = Gated.forward
    patch.setattr(Gated, "forward", lambda self, x: real(self, x).detach())


def answer_from_noise(patch: Patch) -> None:
    """The model's answers have nothing to do with what it reads."""
    real = Decoder.forward
    patch.setattr(Decoder, "forward", lambda self, batch: real(self, batch) * 0 + torch.randn(()))


def see_only_the_past(patch: Patch) -> None:
    """An encoder is causal."""
    causal = (visibility.Causal(),)
    patch.setattr(
        "tfcli.model.family.encoder.Stack", lambda parts, n, rules, **more: Stack(parts, n, causal, **more)
    )


def see_all_of_a_ragged_source(patch: Patch) -> None:
    real = View.across.__func__
    patch.setattr(
        View, "across", classmethod(lambda cls, this: dataclasses.replace(real(cls, this), mask=None))
    )


def see_nothing_of_a_source(patch: Patch) -> None:
    real = View.across.__func__

    def across(cls: type, this: object) -> View:
        view = real(cls, this)
        return dataclasses.replace(view, mask=(view.k_pos < 0)[:, None, None])

    patch.setattr(View, "across", classmethod(across))


def give_every_row_the_first_source(patch: Patch) -> None:
    real = State._reorder_memory
    patch.setattr(State, "_reorder_memory", lambda self, rows: real(self, torch.zeros_like(rows)))


def read_a_prefix_from_left_to_right(patch: Patch) -> None:
    real = State.__init__
    patch.setattr(State, "__init__", lambda self, stack, **more: real(self, stack))


def scale_scores_twice(patch: Patch) -> None:
    """One kernel forgets the square root."""
    real = attend.fused
    patch.setattr(attend, "fused", lambda *a, scale, **k: real(*a, scale=scale**2, **k))


def turn_by_a_rounded_angle(patch: Patch) -> None:
    """The single-token way turns by bf16 angles."""
    real = single.Glances.rotation

    def rotation(self: single.Glances, place: int) -> object:
        turn = real(self, place)
        return turn._replace(cos=turn.cos.bfloat16().float())

    patch.setattr(single.Glances, "rotation", rotation)


ROPE = {"position": "rope"}
ENCODER, BOTH = {"family": "encoder", **ROPE}, {"family": "encoder_decoder", **ROPE}
FAULTS = [
    (laws.cached_equals_one_pass, restart_positions, ROPE),
    (laws.cached_equals_one_pass, forget_the_oldest, ROPE),
    (laws.cached_equals_one_pass, keep_the_window_two_short, {"attention": "sliding", **ROPE}),
    (laws.cached_equals_one_pass, turn_by_a_rounded_angle, ROPE),
    (laws.future_is_invisible, see_the_next_token, ROPE),
    (laws.documents_in_a_row_are_strangers, forget_which_document, ROPE),
    (laws.padding_changes_nothing, show_the_padding, ROPE),
    (
        laws.a_row_says_the_same_alone_and_in_company,
        number_padded_rows_from_their_padding,
        {"position": "learned"},
    ),
    (laws.a_row_says_the_same_alone_and_in_company, show_the_padding, {"position": "alibi"}),
    (laws.reordered_rows_go_on_as_what_they_became, leave_the_cache_in_its_old_order, ROPE),
    (laws.gradients_reach_every_parameter, cut_a_gradient, ROPE),
    (laws.one_batch_is_learned_by_heart, answer_from_noise, ROPE),
    (laws.both_sides_are_seen, see_only_the_past, ENCODER),
    (laws.padding_changes_nothing, show_the_padding, ENCODER),
    (laws.ragged_rows_say_what_each_says_alone, show_the_padding, {"position": "alibi"}),
    (laws.documents_in_a_row_are_strangers, forget_which_document, ENCODER),
    (laws.the_source_is_seen_from_everywhere, see_nothing_of_a_source, BOTH),
    (laws.padding_of_a_source_changes_nothing, see_all_of_a_ragged_source, BOTH),
    (laws.ragged_rows_say_what_each_says_alone, see_all_of_a_ragged_source, BOTH),
    (laws.reordered_rows_go_on_as_what_they_became, give_every_row_the_first_source, BOTH),
    (laws.cached_equals_one_pass, restart_positions, BOTH),
    (laws.a_prefix_is_read_as_in_one_pass, read_a_prefix_from_left_to_right, ROPE),
]


@pytest.mark.parametrize(("law", "fault", "case"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_law_fails_on_a_planted_fault(
    law: Callable[[nn.Module], None], fault: Callable[[Patch], None], case: cases.Case, monkeypatch: Patch
) -> None:
    law(cases.model_of(case))
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        law(cases.model_of(case))


def test_the_law_of_kernels_fails_where_one_scales_otherwise(monkeypatch: Patch) -> None:
    scale_scores_twice(monkeypatch)
    with pytest.raises(AssertionError):
        laws.kernels_agree(cases.model_of(ROPE), cases.model_of(ROPE, *cases.eager(ROPE)))


def test_the_second_implementation_differs_from_a_wrong_turn(monkeypatch: Patch) -> None:
    from model.reference import Reference

    config, model, tokens = cases.config_of(ROPE), cases.model_of(ROPE), cases.ids(1, 9)
    weights = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    right = torch.from_numpy(Reference(config, weights).logits(tokens[0].tolist())).float()
    with torch.no_grad():
        assert torch.allclose(model(Batch(tokens))[0], right, atol=1e-4)
        real = Rope.rotation
        monkeypatch.setattr(
            Rope, "rotation", lambda self, positions, length: real(self, positions + positions, length)
        )
        assert not torch.allclose(model(Batch(tokens))[0], right, atol=1e-3)
