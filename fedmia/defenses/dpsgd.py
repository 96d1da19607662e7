"""DP-SGD on the client (Abadi et al., 2016), by Opacus."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from fedmia.defenses._persample import (
    check_layers,
    images_at_once,
    poisson_batches,
    private_optimizer,
    private_step,
    sample_rate,
)
from fedmia.defenses.accounting import (
    ACCOUNTANTS,
    History,
    check_reachable,
    epsilon_spent,
    noise_for,
)
from fedmia.defenses.base import Defense, Metrics, TrainingConditions
from fedmia.defenses.canaries import (
    AuditedSteps,
    add_scores,
    check_noise,
    draw_coins,
    guess_canaries,
    other_stream,
)
from fedmia.records.privacy import Epsilon
from fedmia.seeding import torch_noise
from fedmia.settings import option
from fedmia.settings.errors import InputError, opt
from fedmia.ssl.base import SSL, SSLMethod
from fedmia.ssl.optimizers import noise_moves
from fedmia.ssl.train import Batch, Job, Train

if TYPE_CHECKING:
    from opacus.optimizers import DPOptimizer

UNIT = (
    "Unit: one image of the client, both its views. Neighbours differ in one image, replaced by a "
    "null record that trains nothing (replaced by another image, the clipped sum moves by 2C). "
    "Public: the number of images, the sampling rate, the steps. "
)
GUARANTEED = (
    "No image's loss rests on another's but through the weights; the views are drawn for each "
    "image. Covers the weights that leave the client, over all rounds, and no loss, norm or share "
    "of clipped images. Assumes that the client follows the protocol. "
)
HEURISTIC = (
    "Heuristic: {what} shapes the gradients of other images, which the accountant does not cover. "
)
CENTRAL_LIMIT = "Heuristic: the gdp accountant is a central limit approximation, often too small."
DEFAULT_NOISE = 0.3
GOAL = 8.0  # epsilon that is still called a guarantee
MOST_IMAGES = 10**9  # a client has fewer
MOVED = 1.0  # how far, in lengths of the weights, the noise may move them where no rate is given


def refuse_added_losses(ssl: SSL) -> None:
    """Refuse the losses that options add to a step: no gradient of an image is found for them.

    Raises:
        InputError: it mixes images, makes adversarial views, or has a term of its own.
    """
    if type(ssl).extra_losses is not SSL.extra_losses:
        what = f"the term that {type(ssl).__name__}.extra_losses adds has no gradient of each image"
        raise InputError(f"{what} here; it must be part of the method's losses")
    for name, why in (
        ("mixup", "mixes images, so no gradient belongs to one image"),
        ("adversarial", "needs gradients of views, which cannot be had beside those of images"),
    ):
        if strength := getattr(ssl, name, 0):
            raise InputError(f"{opt(f'ssl.{name}', strength)} {why}; it must be 0 here")


def least_count(enough: Callable[[int], bool], images: int) -> int | None:
    """The least number of images over `images` that is enough, up to 3 %.

    Args:
        enough: whether a number of images is enough.
        images: number that is not.

    Returns:
        The number; None where none up to MOST_IMAGES is enough.
    """
    low, high = images, images
    while not enough(high := high * 2):
        low = high
        if high > MOST_IMAGES:
            return None
    while high > 1.03 * low:
        middle = round((low * high) ** 0.5)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class DPSGD(Defense):
    """DP-SGD by Opacus: per-image clipping, Poisson batches, Gaussian noise.

    Its epsilon is guaranteed with MAE, BYOL and MoCo on a public queue, heuristic where the method
    keeps what shapes later gradients (`SSLMethod.remembers`). Trains in float32 whatever precision
    was asked for.
    """

    withholds: ClassVar[bool] = True
    paper: ClassVar[str] = "Abadi et al., CCS 2016, arXiv 1607.00133"
    strength: ClassVar[str] = "noise_multiplier"
    strengths: ClassVar[tuple[float, ...]] = (0.1, 0.3, 1.0, 3.0)
    neutral: ClassVar[Mapping[str, Any]] = {
        "epsilon": None, "noise_multiplier": 0.0, "max_grad_norm": 1e6,
    }  # fmt: skip

    epsilon: float | None = option(None, "privacy budget of the whole run, per image", gt=0)
    noise_multiplier: float | None = option(
        None, f"noise over max_grad_norm, in place of epsilon; neither: {DEFAULT_NOISE}", ge=0
    )
    max_grad_norm: float = option(1.0, "largest L2 norm of one image's gradient", gt=0)
    lr: float | None = option(
        None,
        f"learning rate under the noise (none: {opt('train.lr')}, but no more than lets the noise "
        "of the run move the weights by their own length)",
        gt=0,
    )
    delta: float = option(1e-5, "delta of (epsilon, delta)-DP, over the run", gt=0, lt=1)
    accountant: str = option("rdp", "how epsilon is computed", choices=ACCOUNTANTS)
    canaries: int = option(
        0, "canaries of an audit beside the training, for a lower bound of epsilon: 1000", ge=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_noise(self, "noise_multiplier")

    def check(self, setting: TrainingConditions) -> None:
        refuse_added_losses(setting.ssl)
        if setting.norm != "group":
            raise InputError(
                "batch norm mixes the images of a batch, so no gradient belongs to one image; "
                "use model.norm group, and no batch norm in the head"
            )
        if setting.ssl.coupled:
            # Also with every gradient clipped: replacing one image moves those of all others.
            raise InputError(
                "the loss of one image depends on the others of its batch, so no gradient belongs "
                "to one image and clipping bounds nothing; use ssl moco"
            )

    def check_method(self, method: SSLMethod, channels: int, size: int) -> None:
        check_layers(method, lambda trial, views: trial.losses(*views), channels, size)

    def foresee(self, images: int, train: Train, rounds: int) -> None:
        if self.epsilon is not None:
            steps = rounds * train.local_epochs * -(-images // train.batch_size)
            rate = sample_rate(images, train.batch_size)
            check_reachable(self.epsilon, self.delta, rate, steps, self.accountant)

    def forecast(self, images: int, train: Train, rounds: int) -> str | None:
        if self.epsilon is not None or images < 1:
            return None
        noise = DEFAULT_NOISE if self.noise_multiplier is None else float(self.noise_multiplier)
        if noise <= 0:
            return "no noise, so nothing is guaranteed"

        def spent(count: int) -> float:
            steps = rounds * train.local_epochs * -(-count // train.batch_size)
            rate = sample_rate(count, train.batch_size)
            return epsilon_spent([(noise, rate, steps)], self.delta, "rdp")

        value = spent(images)
        if value <= GOAL:
            return None
        needed = least_count(lambda count: spent(count) <= GOAL, images)
        how = f"{opt('defense.dpsgd.epsilon', f'{GOAL:g}')} sets the noise for it"
        if needed is not None:
            how = f"epsilon {GOAL:g} at this noise needs about {needed:,} images a client; {how}"
        return (
            f"these settings end in epsilon {value:.3g} for a client of {images} images, which is "
            f"no meaningful guarantee; {how}"
        )

    def train(self, job: Job, memory: dict[str, Any]) -> Metrics:
        """One round of DP-SGD; the steps taken are added to the history in `memory`.

        Raises:
            InputError: no noise reaches the epsilon asked for, or training diverged.
        """
        started = time.perf_counter()
        noise = self._noise(job, memory)
        size = len(job.images)
        rate = sample_rate(size, job.train.batch_size)
        job.train = replace(job.train, lr=self._rate(job, noise, rate * size, memory))
        weights = job.method.trainable()
        most = images_at_once(weights)
        generator = torch_noise(job.noise_source, job.rng, job.device)
        job.method.train()
        # What the steps leave stays on the device, and is read when they are over.
        losses, norms, signals = list[Tensor](), list[Tensor](), list[Tensor]()
        reach, began = self.sensitivity(job), job.step
        with private_optimizer(job, noise, reach, rate * size, generator) as private:
            private.attach_step_hook(lambda _: self._note_step(job, noise, signals))
            for views in poisson_batches(job):
                if job.stop():
                    break
                job.begin_step()
                private.zero_grad(set_to_none=True)
                batch_losses, batch_norms = self.step(job, private, views, most)
                losses.append(batch_losses)
                norms.append(batch_norms)
                job.method.after_step()
                job.step += 1
            private.zero_grad(set_to_none=True)
        memory["history"] = _extend_history(_history(memory), (noise, rate, job.step - began))
        memory["rounds"] = memory.get("rounds", 0) + 1
        memory["remembers"] = job.method.remembers
        memory["metrics"] = {
            "noise_std": noise * reach / (rate * size),
            "lr": job.train.first_rate,
            **self._withheld_metrics(norms, signals),
        }
        if not bool(torch.stack([w.isfinite().all() for w in weights]).all()):
            raise InputError(self._describe_divergence(noise, job.train.first_rate))
        if self.canaries:
            steps = AuditedSteps(noise, reach, rate, rate * size, job.step - began)
            self._audit(job, steps, memory)
        seconds = time.perf_counter() - started
        loss = _total(losses) / max(sum(map(len, losses)), 1)
        return {"loss": loss, "seconds": seconds, **memory["metrics"]}

    def sensitivity(self, job: Job) -> float:
        """How far one image moves the sum of a step, in L2: the noise is a multiple of it.

        Returns:
            The sensitivity, over 0.
        """
        return self.max_grad_norm

    def step(
        self, job: Job, private: DPOptimizer, views: Batch, most: int
    ) -> tuple[Tensor, Tensor]:
        """One noised step on a batch.

        Args:
            private: Opacus's optimizer around the job's.
            views: two of each image, (B, C, H, W) in [0, 1]; B may be 0.
            most: images whose gradients fit into memory at once.

        Returns:
            losses of the images, (B,), and the norms that were clipped.
        """
        return private_step(job, private, views, most)

    def privacy(self, memory: dict[str, Any]) -> Epsilon | None:
        """Epsilon of the steps so far; None where the noise is 0: nothing is promised.

        Raises:
            InputError: an account of rounds without steps.
        """
        history, rounds = _history(memory), int(memory.get("rounds", 0))
        if rounds and not history:
            raise InputError(f"DP-SGD's account of {rounds} rounds has no step: it is damaged")
        if any(noise <= 0 for noise, _, _ in history):
            return None
        value = epsilon_spent(history, self.delta, self.accountant)
        buffers, limit = str(memory.get("remembers", "")), self.accountant == "gdp"
        rests = HEURISTIC.format(what=buffers) if buffers else "" if limit else GUARANTEED
        full = all(rate >= 1 for _, rate, _ in history)  # each step a Gaussian release
        return Epsilon(
            value=value if math.isfinite(value) else None,
            delta=self.delta,
            rounds=rounds,
            standing="heuristic" if buffers or limit else "guaranteed",
            assumptions=(UNIT + rests + (CENTRAL_LIMIT if limit else "")).strip(),
            unit="image",
            lower_bound=guess_canaries(memory, "one-run-gdp" if full else "one-run"),
        )

    def _audit(self, job: Job, steps: AuditedSteps, memory: dict[str, Any]) -> None:
        """The round's steps once more, on canaries alone; the client's training knows nothing."""
        stream = other_stream(job.rng)
        inside = draw_coins(memory, self.canaries, stream)
        add_scores(memory, steps.score(job, inside, stream))

    def _noise(self, job: Job, memory: dict[str, Any]) -> float:
        """The noise multiplier: as given, or once for all steps of the run from epsilon."""
        if self.epsilon is None:
            multiplier = self.noise_multiplier
            return DEFAULT_NOISE if multiplier is None else float(multiplier)
        if "noise_multiplier" not in memory:
            rate = sample_rate(len(job.images), job.train.batch_size)
            memory["noise_multiplier"] = noise_for(
                self.epsilon, self.delta, rate, job.total_steps, self.accountant
            )
        return float(memory["noise_multiplier"])

    def _rate(self, job: Job, noise: float, expected: float, memory: dict[str, Any]) -> float:
        """The learning rate: as given, or once for the run.

        After T steps of SGD at rates lr_t the noise has moved the weights by about sigma C / B
        times sqrt(d sum lr_t^2) / (1 - momentum). Their own length is the received model's, so
        public.
        """
        train = job.train
        if self.lr is not None or not noise:
            return self.lr or train.first_rate
        if "lr" not in memory:
            weights = job.method.trainable()
            length = float(get_total_norm([w.detach() for w in weights]))
            spread, total = noise * self.sensitivity(job) / expected, job.total_steps
            rates = sum(train.rate(t, total, job.epoch_steps) ** 2 for t in range(total))
            moved = noise_moves(train.optimizer, weights, spread, rates, train.momentum)
            memory["lr"] = train.first_rate * min(1.0, MOVED * length / moved)
        return float(memory["lr"])

    def _describe_divergence(self, noise: float, rate: float) -> str:
        goal = f"{opt('defense.dpsgd.epsilon', f'{self.epsilon:g}')}, " if self.epsilon else ""
        return (
            f"DP-SGD diverged at {goal}noise multiplier {noise:.3g} and learning rate {rate:.3g}: "
            f"a lower {opt('defense.dpsgd.lr')}, a larger {opt('train.batch_size')} or less noise "
            "helps"
        )

    def _note_step(self, job: Job, noise: float, signals: list[Tensor]) -> None:
        """After the noise, before the step: the step's signal to noise, and the job's hook."""
        weights = job.method.trainable()
        if noise:
            # The noise's expected norm: its deviation times the root of the number of weights.
            spread = noise * self.sensitivity(job) * math.sqrt(sum(w.numel() for w in weights))
            sums = [w.summed_grad for w in weights]  # type: ignore[attr-defined]
            signals.append(get_total_norm(sums) / spread)
        job.after_backward()

    def _withheld_metrics(self, norms: list[Tensor], signals: list[Tensor]) -> Metrics:
        """Metrics that rest on the images, so none of them leaves the client."""
        clipped = max(sum(map(len, norms)), 1)
        metrics = {
            "clipped": _total([n > self.max_grad_norm for n in norms]) / clipped,
            "gradient_norm": _total(norms) / clipped,
        }
        if signals:
            metrics["signal_to_noise"] = float(torch.stack(signals).mean())
        return metrics


def _total(parts: list[Tensor]) -> float:
    return float(torch.cat(parts).double().sum()) if parts else 0.0


def _history(memory: dict[str, Any]) -> History:
    return [(float(a), float(b), int(n)) for a, b, n in memory.get("history", [])]


def _extend_history(history: History, entry: tuple[float, float, int]) -> list[list[float]]:
    """`history` with `entry`, joined to the last one where only the count differs; JSON-able."""
    if history and history[-1][:2] == entry[:2]:
        entry = (*entry[:2], history.pop()[2] + entry[2])
    return [list(e) for e in [*history, entry]]
