"""Every attack in the registry keeps the same promises; null and oracle make its scores believable.

An attack gets exactly the view that its declared needs ask for. A client's view holds two attack
rounds: what the attack itself crafted, and the mean of that and the weights received.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from fedmia import registry
from fedmia.attacks.base import ActiveAttack, Attack, Known, NotFitted, Scores
from fedmia.nets.base import Backbone
from fedmia.seeding import rng, torch_rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import Encoder, SSLMethod
from fedmia.ssl.moco import MoCo, MomentumContrast
from fedmia.threat import BlackBox, BudgetError, ClientView, Signals, WhiteBox

ATTACKS = registry.names("attack")
CPU = torch.device("cpu")
AUGMENT = Augment(hue=0.1)
VIEWS = {view.threat: view for view in (BlackBox, WhiteBox, ClientView)}
every_attack = pytest.mark.parametrize("name", ATTACKS)


def build(name: str, **options: Any) -> Attack:
    """The attack with its defaults, and those of `options` that it has."""
    fields = {f.name for f in dataclasses.fields(registry.load("attack", name))}
    attack: Attack = registry.build(
        "attack", name, {k: v for k, v in options.items() if k in fields}
    )
    return attack


def make_view(
    attack: Attack, method: SSLMethod, targets: Tensor, augment: Augment = AUGMENT, **more: Any
) -> BlackBox:
    """The least view that the attack says is enough, on a copy of `method`."""
    cls = VIEWS[attack.needs]
    values: dict[str, Any] = {"seed": 0, "device": CPU, **more}
    if cls is not ClientView:
        return cls(copy.deepcopy(method), augment, **values)
    assert isinstance(attack, ActiveAttack)
    received, sent = {0: method.shared_state()}, {}
    for turn in (0, 1):
        base = received[turn]
        picked = targets[torch.from_numpy(attack.chosen(targets, turn))]
        sent[turn + 1] = attack.craft(
            copy.deepcopy(method), base, base, picked, augment, rng(0, "craft", turn)
        )
        received[turn + 1] = {n: (t + sent[turn + 1][n]) / 2 for n, t in base.items()}
    released = copy.deepcopy(method)
    released.load_shared(received[2])
    return ClientView(released, augment, received=received, sent=sent, targets=targets, **values)


def fit_score(attack: Attack, view: Any, known: Known, images: Tensor) -> Scores:
    attack.fit(view, known, rng(0, "fit"))
    return attack.score(view, images)


def everything(method: SSLMethod) -> dict[str, Tensor]:
    state = method.state_dict() | method.local_state()
    return {name: tensor.clone() for name, tensor in state.items()}


@pytest.fixture(scope="module")
def moco(make_moco: Callable[..., MomentumContrast]) -> MomentumContrast:
    return make_moco()


@every_attack
def test_score__one_finite_float64_an_image(
    name: str, moco: MomentumContrast, images: Tensor, known: Known
) -> None:
    attack = build(name)
    got = fit_score(attack, make_view(attack, moco, images), known, images)
    assert got.shape == (len(images),) and got.dtype == np.float64
    assert np.isfinite(got).all()
    assert len(np.unique(got)) > 10


@every_attack
def test_score__same_seed_same_scores(
    name: str, moco: MomentumContrast, images: Tensor, known: Known
) -> None:
    runs = []
    for other in (1, 2):  # the global generators play no part
        np.random.seed(other)
        torch.manual_seed(other)
        attack = build(name)
        runs.append(fit_score(attack, make_view(attack, moco, images), known, images))
    np.testing.assert_array_equal(runs[0], runs[1])


@every_attack
def test_score__order_of_candidates_and_targets_only_permutes(
    name: str, moco: MomentumContrast, images: Tensor, known: Known
) -> None:
    """Nor can an attack read the truth off an order, members first or last."""
    attack = build(name, batch=8)  # fewer than the images: batches must not follow the order
    view = make_view(attack, moco, images)
    want = fit_score(attack, view, known, images)
    order = torch.from_numpy(rng(0, "order").permutation(len(images)))
    np.testing.assert_allclose(attack.score(view, images[order]), want[order], atol=1e-6)
    if isinstance(view, ClientView):
        view.targets = images[order]
        np.testing.assert_allclose(attack.score(view, images), want, atol=1e-6)


@every_attack
def test_score__of_a_subset_is_the_whole_ones(
    name: str, moco: MomentumContrast, images: Tensor, known: Known
) -> None:
    """What else is scored changes nothing. An attack that works on batches of the images under
    test (those of its option `batch`) keeps this image by image at batch 1."""
    attack = build(name, batch=1)
    view = make_view(attack, moco, images)
    want = fit_score(attack, view, known, images)
    some = torch.tensor([17, 3, 8])
    np.testing.assert_allclose(attack.score(view, images[some]), want[some], atol=1e-5)


@every_attack
def test_score__is_asked_without_truth(name: str) -> None:
    cls = registry.load("attack", name)
    assert list(inspect.signature(cls.score).parameters) == ["self", "view", "images"]
    assert list(inspect.signature(cls.fit).parameters) == ["self", "view", "known", "rng"]


@every_attack
def test_fit__candidates_play_no_part(
    name: str, moco: MomentumContrast, images: Tensor, known: Known
) -> None:
    """Fitted once, an attack scores any candidates by what it fitted on the known images only."""
    attack = build(name, batch=1)
    view = make_view(attack, moco, images)
    attack.fit(view, known, rng(0, "fit"))
    attack.score(view, images.flip(0)[:9])
    first = attack.score(view, images)
    attack.fit(view, known, rng(0, "fit"))
    np.testing.assert_allclose(attack.score(view, images), first, atol=1e-6)


@every_attack
def test_fit__twice_forgets_the_first(
    name: str, moco: MomentumContrast, images: Tensor, known: Known
) -> None:
    once, twice = build(name), build(name)
    view = make_view(once, moco, images)
    want = fit_score(once, view, known, images)
    twice.fit(view, Known(known.nonmembers, known.members), rng(1, "fit"))
    np.testing.assert_array_equal(fit_score(twice, view, known, images), want)


@every_attack
def test_learns__says_whether_the_known_images_matter(
    name: str, moco: MomentumContrast, images: Tensor, known: Known
) -> None:
    attack = build(name)
    view = make_view(attack, moco, images)
    want = fit_score(attack, view, known, images)
    swapped = Known(known.nonmembers, known.members)
    got = fit_score(attack, view, swapped, images)
    assert np.array_equal(got, want) != attack.learns


@every_attack
def test_score__before_fit_is_refused(name: str, moco: MomentumContrast, images: Tensor) -> None:
    attack = build(name)
    with pytest.raises(NotFitted, match=name):
        attack.score(make_view(attack, moco, images), images)


@every_attack
def test_target__is_left_untouched(
    name: str, moco: MomentumContrast, images: Tensor, known: Known
) -> None:
    attack = build(name)
    view = make_view(attack, moco, images)
    pool, before = images.clone(), everything(view._method)
    held = {r: {n: t.clone() for n, t in s.items()} for r, s in getattr(view, "sent", {}).items()}
    fit_score(attack, view, known, images)
    after = everything(view._method)
    assert all(torch.equal(after[n], t) for n, t in before.items())
    assert all(w.grad is None for w in view._method.parameters())
    assert torch.equal(images, pool)
    for round, state in held.items():
        assert all(torch.equal(view.sent[round][n], t) for n, t in state.items())  # type: ignore[attr-defined]


@every_attack
def test_queries__are_what_passed_through_the_encoder(
    name: str, moco: MomentumContrast, images: Tensor, known: Known,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    attack = build(name)
    alone, cached = (
        make_view(attack, moco, images, signals=signals) for signals in (Signals(), Signals())
    )
    fit_score(attack, cached, known, images)  # its rows are known below: it counts all the same
    asked, cached.queries = cached.queries, 0
    passed: list[int] = []
    normalise = Encoder.normalise

    def counted(self: Encoder, pixels: Tensor) -> Tensor:
        if bool(pixels.any()):  # `features` asks for widths with one black image: no query
            passed.append(len(pixels))
        return normalise(self, pixels)

    monkeypatch.setattr(Encoder, "normalise", counted)
    fit_score(attack, alone, known, images)
    assert alone.queries == sum(passed) == asked > 0
    fit_score(attack, cached, known, images)
    assert cached.queries == asked


@every_attack
def test_budget__is_kept(name: str, moco: MomentumContrast, images: Tensor, known: Known) -> None:
    attack = build(name)
    view = make_view(attack, moco, images)
    want = fit_score(attack, view, known, images)
    enough = make_view(attack, moco, images, budget=view.queries)
    np.testing.assert_array_equal(fit_score(attack, enough, known, images), want)
    assert enough.remaining == 0
    short = make_view(attack, moco, images, budget=view.queries - 1)
    with pytest.raises(BudgetError):
        fit_score(attack, short, known, images)
    assert short.queries <= view.queries - 1


@every_attack
def test_pickle__keeps_options_and_fit(
    name: str, moco: MomentumContrast, images: Tensor, known: Known
) -> None:
    attack = build(name)
    view = make_view(attack, moco, images)
    want = fit_score(attack, view, known, images)
    back = pickle.loads(pickle.dumps(attack))
    np.testing.assert_array_equal(back.score(view, images), want)


@every_attack
def test_features__are_three_named_finite_columns(
    name: str, moco: MomentumContrast, images: Tensor
) -> None:
    attack = build(name)
    found = attack.features(make_view(attack, moco, images), images)
    if found is not None:
        names, table = found
        assert len(set(names)) == 3 and table.shape == (len(images), 3)
        assert np.isfinite(table).all()


@every_attack
def test_declaration__names_paper_and_a_view_that_exists(name: str) -> None:
    cls = registry.load("attack", name)
    assert cls.paper and "\n" not in cls.paper
    assert cls.needs in VIEWS
    assert issubclass(cls, ActiveAttack) == (cls.needs.vantage == "client")


@every_attack
def test_disarmed__is_the_same_attack_without_its_active_step(
    name: str, moco: MomentumContrast, images: Tensor
) -> None:
    attack = build(name, base="trained")
    if not isinstance(attack, ActiveAttack):
        return
    control = attack.disarmed()
    assert type(control) is type(attack)
    received = moco.shared_state()
    trained = {n: t + 0.01 for n, t in received.items()}
    sent = control.craft(copy.deepcopy(moco), received, trained, images, AUGMENT, rng(0, "craft"))
    assert all(torch.equal(sent[n], t) for n, t in trained.items())  # the honest update
    np.testing.assert_array_equal(control.chosen(images, 1), attack.chosen(images, 1))


# -- null: nothing was learned, so nothing may be found


@every_attack
def test_null__untrained_encoder_gives_chance(name: str, moco: MomentumContrast,
                                              textures: Callable[..., Tensor]) -> None:  # fmt: skip
    """Members and non-members of one distribution, and a model that saw neither."""
    n = 150
    pool = textures(2 * n + 80, seed=7)
    truth = rng(0, "truth").permutation(np.repeat([1, 0], n))
    attack = build(name)
    view = make_view(attack, moco, pool[: 2 * n])
    known = Known(pool[2 * n : 2 * n + 40], pool[2 * n + 40 :])
    auc = roc_auc_score(truth, fit_score(attack, view, known, pool[: 2 * n]))
    sigma = np.sqrt((2 * n + 1) / (12 * n * n))  # of the AUC under the null, 0.033
    assert abs(auc - 0.5) < 3 * sigma


# -- oracle: a leak is planted, so it must be found


class Memory(Backbone):
    """A trunk that recognises its members, however a view's brightness was changed.

    A view is matched to the nearest stored member in pixel space. (a) All views of a member give
    one vector, whereas two views of another image differ; (b) that vector is peaked; (c) it does
    not move with the parameters, so a member's loss does not rise under ascent.
    """

    layers = ("layer1", "layer2", "layer3", "layer4")
    width = 32
    members: Tensor

    def __init__(self, members: Tensor, channels: int, size: int, reach: float) -> None:
        super().__init__()
        inputs = channels * size * size
        self.mix = nn.Linear(inputs, self.width)
        with torch.no_grad():
            weight = torch.randn(self.width, inputs, generator=torch_rng(0, "mix"))
            self.mix.weight.copy_(weight / inputs**0.5)
            self.mix.bias.zero_()
        self.reach = reach
        self.register_buffer("members", members.flatten(1).float() / 255, persistent=False)

    def matched(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Index of the nearest member (B,), and whether it is near enough (B, 1)."""
        far, index = torch.cdist(flat.detach(), self.members).min(dim=1)
        return index, (far < self.reach)[:, None]

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(1)
        index, member = self.matched(flat)
        remembered = 20 * nn.functional.one_hot(index % self.width, self.width).float()
        out = torch.where(member, remembered, self.mix(torch.sin(15 * flat)))
        return dict.fromkeys(self.layers, out[:, :, None, None])


@pytest.fixture(scope="module")
def oracle(textures: Callable[..., Tensor]) -> dict[str, Any]:
    """Members and non-members of one distribution, and a method with a planted leak of members.

    Its views change brightness and contrast a little, and nothing else, so that a view stays
    nearer to its own image than to any other.
    """
    n = 60
    pool = textures(2 * n + 60, seed=11)
    members, others = pool[:n], pool[n : 2 * n]
    known = Known(pool[2 * n : 2 * n + 30], pool[2 * n + 30 :])
    reach = 1.2
    backbone = Memory(torch.cat([members, known.members]), 3, pool.shape[-1], reach)
    encoder = Encoder(backbone, nn.Identity(), (0.0,) * 3, (1.0,) * 3)
    spec = MoCo(dim=backbone.width, queue=16, temperature=0.2)
    return {
        "method": MomentumContrast(encoder, spec, 16, torch_rng(0, "queue")),
        "members": members, "others": others, "known": known,
        "augment": Augment(
            crop_min=1, ratio_min=1, ratio_max=1, flip=0, brightness=0.1, contrast=0.1,
            saturation=0, hue=0, jitter_p=1, gray_p=0,
        ),
    }  # fmt: skip


def test_oracle__knows_its_members_and_no_one_else(oracle: dict[str, Any]) -> None:
    """The leak is in the model, not in the images: every view of a member is recognised, no view
    of another image is, and the two sets differ in no pixel statistic."""
    view = BlackBox(oracle["method"], oracle["augment"], seed=0, device=CPU)
    backbone = oracle["method"].encoder.backbone
    for group, want in (("members", True), ("others", False)):
        pixels = view.view_pixels(oracle[group], 16).flatten(0, 1)
        assert bool((backbone.matched(pixels.flatten(1))[1] == want).all())
    means = [oracle[g].float().mean(dim=(1, 2, 3)).numpy() for g in ("members", "others")]
    auc = roc_auc_score([1] * 60 + [0] * 60, np.concatenate(means))
    assert abs(auc - 0.5) < 3 * np.sqrt(121 / (12 * 3600))


def oracle_auc(oracle: dict[str, Any], attack: Attack) -> float:
    order = rng(0, "order").permutation(120)
    truth = np.repeat([1, 0], 60)[order]
    images = torch.cat([oracle["members"], oracle["others"]])[torch.from_numpy(order)]
    view = make_view(attack, oracle["method"], images, oracle["augment"])
    return float(roc_auc_score(truth, fit_score(attack, view, oracle["known"], images)))


@every_attack
def test_oracle__planted_leak_is_found(name: str, oracle: dict[str, Any]) -> None:
    assert oracle_auc(oracle, build(name)) > 0.95


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("similarity", {"pairs": "top3"}),
        ("similarity", {"pairs": "all", "classifier": "svm"}),
        ("internal", {"layers": ("layer1",)}),
        ("combined", {"classifier": "svm"}),
        ("combined", {"classifier": "lr"}),
        ("ascent", {"reading": "rise", "steps": 5}),
        ("ascent", {"reading": "line23"}),
        ("ascent", {"base": "trained", "boost": 3.0}),
        ("ascent", {"schedule": "rotate", "batch": 64}),
        ("ascent-static", {"batch": 8}),
        ("ascent-static", {"loss": "algorithm1"}),
    ],
)
def test_oracle__planted_leak_is_found_in_every_reading(
    name: str, options: dict[str, Any], oracle: dict[str, Any]
) -> None:
    assert oracle_auc(oracle, registry.build("attack", name, options)) > 0.95


@every_attack
def test_oracle__of_other_members_gives_chance(name: str, oracle: dict[str, Any]) -> None:
    """The same model, but the images posing as members were never stored: only the stored ones
    leak, so what the oracle test found was the leak and not the harness."""
    attack = build(name)
    images = oracle["others"]
    view = make_view(attack, oracle["method"], images, oracle["augment"])
    truth = rng(0, "poser").permutation(np.repeat([1, 0], 30))
    auc = roc_auc_score(truth, fit_score(attack, view, oracle["known"], images))
    assert abs(auc - 0.5) < 3 * np.sqrt(61 / (12 * 900))
