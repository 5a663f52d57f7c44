"""The training loop: draw, learn, and at named moments log, evaluate, save, stop."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from tfcli import checkpoint
from tfcli.batch import Batch
from tfcli.build import plain
from tfcli.console import Progress
from tfcli.data import Corpus
from tfcli.errors import ConfigError, RunError
from tfcli.evaluate import validation_loss
from tfcli.generate import generate
from tfcli.loss import cross_entropy_sum
from tfcli.objective import Objective
from tfcli.optimizer import clip_gradients, load_state_by_name, set_lr, state_by_name
from tfcli.precision import Precision
from tfcli.runlog import RunLog
from tfcli.sampler import Sampler
from tfcli.tokenizer import Tokenizer
from tfcli.values import Count, Positive

SKIPS = 10  # so many steps in a row that are not finite end a run, even one that skips


class Settings(NamedTuple):
    """The keys of `train`; what they mean stands in configs/train.yaml."""

    steps: Count
    batch_size: Count
    seq_len: Count
    batch_tokens: Count | None = None
    micro_batch_size: Count | None = None
    grad_clip: Positive | None = 1.0
    log_every: Count = 10
    eval_every: Count | None = 100
    eval_batches: Count | None = None
    save_every: Count | None = 250
    keep_last: Count = 3
    keep_best: bool = True
    patience: Count | None = None
    non_finite: Literal["stop", "skip"] = "stop"
    sample_every: Count | None = None
    sample_prompt: str = ""
    compile: bool = False
    recompute: bool = False
    loss_chunk: Count | None = None

    @property
    def eval_limit(self) -> int | None:
        """How many rows an evaluation reads; None: all."""
        return self.eval_batches and self.eval_batches * self.batch_size

    def checked(self) -> Settings:
        """Itself. Raises ConfigError where one key makes another one mean nothing."""
        if self.patience is not None and self.eval_every is None:
            raise ConfigError(
                f"train.patience={self.patience}: counts evaluations, and train.eval_every=null makes none"
            )
        if self.compile and self.loss_chunk is not None:
            raise ConfigError(
                f"train.compile=true: does nothing with train.loss_chunk={self.loss_chunk}; set only one"
            )
        return self


@dataclass
class Progressed:
    """How far a run is: what a checkpoint keeps beside weights, optimizer and random numbers."""

    step: int = 0
    tokens: int = 0  # labels scored so far
    nats: float = 0.0  # since the last log
    nats_tokens: int = 0
    best: float = math.inf  # the lowest validation loss
    best_step: int | None = None
    since_best: int = 0  # evaluations without a better one
    skipped: int = 0  # steps in a row that were not finite


@dataclass
class Run:
    """Everything that training needs, and the loop."""

    model: nn.Module
    tokenizer: Tokenizer
    corpus: Corpus
    objective: Objective
    optimizer: torch.optim.Optimizer
    schedule: Callable[[int], float]
    precision: Precision
    settings: Settings
    config: Any  # resolved; kept in the run folder and in its checkpoints
    folder: Path
    log: RunLog
    device: torch.device
    at: Progressed = field(default_factory=Progressed)

    def __post_init__(self) -> None:
        self.settings.checked()
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.scaler = self.precision.scaler(self.device)
        self.caught: int | None = None  # the signal that asks the run to stop
        self.wants_save = False
        self.unsaved: OSError | None = None
        self.saved: int | None = None  # the last step that this run has a checkpoint of
        self.refused: set[str] = set()  # what could not be written, and was said
        self.without_target = 0  # steps
        self.seconds = 0.0  # in steps since the last log
        self.norm = math.nan

    def begin(self) -> None:
        """Makes the run folder: from here on there is something to keep.

        A run that goes on in its folder from an older checkpoint forgets what it did after it.
        """
        if self.goes_on_here():
            self.saved = self.at.step
            for later in checkpoint.steps(self.folder):
                if checkpoint.step_of(later) > self.at.step:
                    print(f"{later}: removed, as the run goes on from step {self.at.step}", file=sys.stderr)
                    checkpoint.remove(later)
        checkpoint.save_config(self.folder, self.config)
        self.log.begin(self.at.step, settings=plain(self.config))

    def goes_on_here(self) -> bool:
        """Whether the checkpoint that the run goes on from lies in the run's own folder."""
        if not self.config.resume:
            return False
        origin = Path(self.config.resume).resolve()
        if checkpoint.step_of(origin) is not None:
            origin = origin.parents[1]
        return self.folder.resolve() == origin

    def train(self) -> None:
        """Trains to the last step. Raises RunError if it cannot go on; ends the process by 128+signal if
        asked to.
        """
        steps = self.settings.steps
        self.progress = Progress(steps, step=self.at.step)
        try:
            if self.at.step == steps:
                self.say(f"already at step {steps} of {steps}: nothing to do")
            self.loop()
            self.draw(final=True)
        finally:
            self.attempt("the log", self.log.close)
            self.progress.close()
        self.finish()

    def loop(self) -> None:
        """Step by step, with a moment to log, to evaluate, to show a sample, to save, and to stop."""
        run, at = self.settings, self.at
        self.model.train()
        with self.catching_signals():
            while at.step < run.steps and not self.caught:
                began = time.perf_counter()
                self.learn()
                self.seconds += time.perf_counter() - began
                if self.every(run.log_every):
                    self.write_log()
                if self.every(run.eval_every):
                    self.evaluate()
                if self.every(run.sample_every, last=False) and not self.caught:
                    self.sample()
                if self.every(run.save_every) or at.step == run.steps or self.caught or self.wants_save:
                    self.save()
                if run.patience is not None and at.since_best >= run.patience:
                    self.say(
                        f"stopping at step {at.step}: no better validation loss "
                        f"in {at.since_best} evaluations"
                    )
                    self.save()
                    break

    def every(self, n: int | None, last: bool = True) -> bool:
        """Whether a moment that comes every n steps is now; the last step counts as one."""
        return n is not None and (self.at.step % n == 0 or (last and self.at.step == self.settings.steps))

    # --- one step -------------------------------------------------------------------------------------------

    def learn(self) -> None:
        """One optimizer step: the gradient of the mean over all the tokens that the step scores."""
        run, at = self.settings, self.at
        step = at.step + 1
        examples = self.corpus.train.draw(run.batch_size)
        size = run.micro_batch_size or len(examples)
        batches = [self.objective(examples[i : i + size]) for i in range(0, len(examples), size)]
        tokens = sum(batch.targets for batch in batches)
        self.lr = set_lr(self.optimizer, self.schedule(step))
        nats = torch.zeros((), device=self.device)
        for batch in batches:
            loss = self.loss(batch.to(self.device))
            self.scaler.scale(loss / max(tokens, 1)).backward()
            nats += loss.detach()
        self.scaler.unscale_(self.optimizer)
        norm = clip_gradients(self.parameters, run.grad_clip)
        nats, self.norm = nats.item(), norm.item()
        if not tokens:
            self.nothing_to_learn(step)
        elif self.finite(step, nats / tokens):
            self.scaler.step(self.optimizer)
            at.tokens, at.nats, at.nats_tokens = at.tokens + tokens, at.nats + nats, at.nats_tokens + tokens
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        at.step = step
        self.progress.advance(step, loss=nats / max(tokens, 1), lr=self.lr, tokens=tokens)

    def loss(self, batch: Batch) -> Tensor:
        """The sum over the batch's labels of their nats, smoothed as the objective says."""
        smoothing, chunk = self.objective.label_smoothing, self.settings.loss_chunk
        with self.precision.autocast(self.device):
            if self.settings.compile:
                return cross_entropy_sum(self.model(batch), batch.labels, smoothing)
            if chunk is None:
                return cross_entropy_sum(*self.model.scores(batch), smoothing)
            hidden, how = self.model.hidden(batch), {"chunk": chunk, "label_smoothing": smoothing}
            return self.model.head.chunked_loss(hidden, batch.labels, batch.positions, **how)

    def nothing_to_learn(self, step: int) -> None:
        """Says the first time that a step has no label; how many there were is said at the end."""
        self.without_target += 1
        if self.without_target == 1:
            self.say(f"step {step}: no token to score in its batch, so the weights stay as they are")

    def finite(self, step: int, loss: float) -> bool:
        """Whether the step may change the weights. If not, the run stops or skips the step, as settings
        say.
        """
        if math.isfinite(loss) and (math.isfinite(self.norm) or self.scaler.is_enabled()):
            self.at.skipped = 0
            return True
        self.at.skipped += 1
        what = f"step {step}: loss {loss:.4g}, gradient norm {self.norm:.4g}"
        if self.settings.non_finite == "skip" and self.at.skipped < SKIPS:
            self.say(f"{what}; not finite, so the step is skipped and the weights stay as they are")
            return False
        self.optimizer.zero_grad(set_to_none=True)
        raise RunError(f"{what}; not finite. {self.saved_before(step)}; {self.advice()}")

    def saved_before(self, step: int) -> str:
        """Saves what came before a step that failed, and tells what a resumed run finds."""
        if self.save():
            return (
                f"The weights of step {step - 1} are saved in {self.folder}, and a resumed run goes on "
                "behind that batch"
            )
        if self.unsaved:
            return f"The weights of step {step - 1} are not saved; a resumed run goes on from an earlier step"
        return f"The weights of step {step - 1} are in {self.folder}; a resumed run meets that batch again"

    def advice(self) -> str:
        if self.settings.non_finite == "skip":
            return "try a lower optimizer.lr or a longer schedule.warmup"
        return "try a lower optimizer.lr, a longer schedule.warmup, or train.non_finite=skip"

    # --- moments --------------------------------------------------------------------------------------------

    def write_log(self) -> None:
        """Means over the steps since the last log."""
        at = self.at
        values = {
            "loss": at.nats / max(at.nats_tokens, 1),
            "lr": self.lr,
            "grad_norm": self.norm,
            "tokens": at.tokens,
        }
        values["tokens_per_second"] = at.nats_tokens / max(self.seconds, 1e-9)
        self.record(values)
        at.nats, at.nats_tokens, self.seconds = 0.0, 0, 0.0

    def evaluate(self) -> None:
        """The loss on the validation part; the best so far is saved.

        A signal cuts it short: then nothing is recorded, no patience is lost, and a resumed run, which goes
        on with the next step, does not make it up.
        """
        run, at = self.settings, self.at
        score = validation_loss(
            self.model,
            self.corpus.validation,
            self.objective,
            batch_size=run.micro_batch_size or run.batch_size,
            device=self.device,
            precision=self.precision,
            limit=run.eval_limit,
            should_stop=lambda: self.caught is not None,
            count_correct=self.model.family == "encoder",
        )
        if score is None:
            return
        found, said = {"val_loss": score.loss}, f"perplexity {score.perplexity:.2f}"
        if self.objective.says == "tokens":
            found["val_perplexity"] = score.perplexity
        if score.accuracy is not None:
            found["val_accuracy"] = score.accuracy
            said = f"accuracy {score.accuracy:.1%}"
        self.record(found)
        self.say(f"step {at.step}: validation loss {score.loss:.4f}, {said}")
        at.since_best += 1
        if score.loss < at.best:
            at.best, at.best_step, at.since_best = score.loss, at.step, 0
            self.wants_save = self.wants_save or run.keep_best
        self.draw()

    def sample(self) -> None:
        """Shows what the model writes now."""
        prompt, text = self.settings.sample_prompt, self.written()
        shown = f"{prompt!r} -> {text!r}" if self.model.family == "encoder_decoder" else repr(prompt + text)
        self.say(f"step {self.at.step}: {shown}")

    def written(self, **more: Any) -> str:
        """What follows the sample prompt; the run's own random numbers are not touched."""
        prompt, data = [self.settings.sample_prompt], self.config.data
        how = {"bos": data.bos, "sampler": Sampler(temperature=0.8), "seed": self.at.step, **more}
        if self.model.family == "encoder_decoder":
            how |= {"sources": prompt, "eos": data.eos, "start_id": self.objective.start_id}
        else:
            how |= {"prompts": prompt, "prefix": self.objective.prefix}
        (completion,) = generate(self.model, self.tokenizer, **how)
        return completion.text

    def draw(self, final: bool = False) -> None:
        problem = self.attempt("loss.png", lambda: self.log.draw(final=final))
        if problem:
            self.say(problem)

    def record(self, values: dict[str, Any]) -> None:
        self.attempt("the log", lambda: self.log.write(self.at.step, values))

    def attempt(self, what: str, write: Callable[[], Any]) -> Any:
        """Writes what the run can do without: that it cannot be written is said once, and the run goes on."""
        try:
            return write()
        except OSError as error:
            if what not in self.refused:
                self.refused.add(what)
                self.say(f"step {self.at.step}: {what} could not be written ({error}); the run goes on")

    def save(self) -> bool:
        """A checkpoint, unless there is one of this step; whether it was written now.

        One that cannot be written is reported, older ones stay, and the run goes on.
        """
        at, self.wants_save = self.at, False
        if self.saved == at.step and checkpoint.damage(checkpoint.folder_of(self.folder, at.step)) is None:
            return False
        try:
            checkpoint.save(self.folder, at.step, self.model, self.tokenizer, self.config, self.state())
            self.saved, self.unsaved = at.step, None
            best = at.best_step if self.settings.keep_best else None
            checkpoint.keep(self.folder, self.settings.keep_last, best, at.step)
            return True
        except OSError as error:
            self.unsaved = error
            self.say(
                f"step {at.step}: the checkpoint could not be written ({error}); earlier ones are untouched"
            )
            return False

    def finish(self) -> None:
        """What is left to say. Raises RunError if the last checkpoint is not on disk."""
        if self.without_target > 1:
            self.say(f"{self.without_target} steps had no token to score and changed nothing")
        if self.unsaved:
            raise RunError(f"step {self.at.step} could not be saved in {self.folder}: {self.unsaved}")
        if self.caught:
            name = signal.Signals(self.caught).name
            self.say(f"{name}: saved at step {self.at.step}; go on with: tf-train resume={self.folder}")
            raise SystemExit(128 + self.caught)

    def say(self, text: str) -> None:
        self.progress.say(text)

    # --- stopping and going on ------------------------------------------------------------------------------

    @contextmanager
    def catching_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the run after the step, saved; a second one at once. SIGUSR1 saves and goes
        on.
        """

        def stop(number: int, frame: object) -> None:
            if self.caught:
                os._exit(128 + number)
            self.caught = number

        def save(number: int, frame: object) -> None:
            self.wants_save = True

        handlers = {signal.SIGINT: stop, signal.SIGTERM: stop}
        if hasattr(signal, "SIGUSR1"):
            handlers[signal.SIGUSR1] = save
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def state(self) -> dict[str, Any]:
        """What training needs to go on bit for bit, as tensors and plain values."""
        cuda = torch.cuda.get_rng_state_all() if self.device.type == "cuda" else []
        return {
            "at": vars(self.at).copy(),
            "optimizer": state_by_name(self.optimizer, self.model),
            "data": self.corpus.train.state_dict(),
            "scaler": self.scaler.state_dict(),
            "random": {"cpu": torch.get_rng_state(), "cuda": cuda},
        }

    def go_on_from(self, state: dict[str, Any]) -> None:
        """Puts back what `state` gave. Raises ConfigError if it is of another model, another optimizer or
        another version, or past the last step.
        """
        try:
            self.put_back(state)
        except (AttributeError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self.config.resume}: its training.pt is of another version of tfcli ({error}); "
                "init_from takes the weights alone"
            ) from error
        if self.at.step > self.settings.steps:
            raise ConfigError(
                f"train.steps={self.settings.steps}: the run to go on with is at step {self.at.step} already"
            )

    def put_back(self, state: dict[str, Any]) -> None:
        load_state_by_name(self.optimizer, self.model, state["optimizer"])
        self.at = Progressed(**state["at"])
        self.corpus.train.load_state_dict(state["data"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["random"]["cpu"])
        if self.device.type == "cuda" and state["random"]["cuda"]:
            torch.cuda.set_rng_state_all(state["random"]["cuda"])
