"""What a run hands to whom. Each test fails for one wire that leads to the wrong place: which
model an attack reads, whose rounds a control sees, which images an attacker holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

import fedmia
from fedmia.data.cast import ATTACKED, SCORED, Cast
from fedmia.data.images import digests
from fedmia.recording import Recording
from strategies.cohort import Phase, draw_cohort
from tests import watched
from tests.small_runs import ran as small_ran
from tests.watched import Seen, brightness, same, total

from .conftest import tiny

W = "tests.watched"
ACTIVE = f"--attacker active --attack-rounds 2 --strategy {W}:Mean "
ACTIVE += "--federation.keep_updates 4 --federation.snapshots 4 "
PARTIAL = (
    f"--rounds 8 --attacker active --attack-rounds 4 --seed 4 --strategy {W}:Momentum "
    "--strategy.server_lr 0.5 --strategy.weighting examples --federation.participation 0.5 "
    "--partition dirichlet --partition.alpha 1 --federation.snapshots 1 "
    f"--attacks {W}:Weighs,{W}:Glances"
)


@dataclass
class Run:
    """A finished run, and what its plugins saw."""

    folder: Path
    seen: Seen
    clean: int  # the last round before an attack
    attacked: list[int]  # rounds in which its client acted
    last: int
    seed: int = 0
    share: float = 1.0
    holder: int = 3
    active: str = f"{W}:Pushes"

    @cached_property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return report

    @cached_property
    def opened(self) -> Any:
        return fedmia.open_run(self.folder, trust_plugins=True)

    @cached_property
    def cast(self) -> Cast:
        cast: Cast = self.opened.images
        return cast

    @cached_property
    def recording(self) -> Recording:
        return Recording(self.folder / "recording")

    @cached_property
    def totals(self) -> dict[tuple[str, int], float]:
        """A number that tells the models apart, by branch and round."""
        found = {at: total(state) for at, state in self.seen.models.items()}
        return found | {("untrained", 0): found["main", 0]}

    def took_part(self, client: int) -> list[int]:
        """The rounds whose cohort held a client."""
        phase = Phase("", 0, self.last, False, self.share, self.seed)
        return [r for r in range(1, self.last + 1) if client in draw_cohort(phase, r, 4)]

    def near(self, value: float) -> set[tuple[str, int]]:
        """The models that a number tells."""
        return {at for at, own in self.totals.items() if abs(own - value) < 1e-9}

    def attacked_images(self) -> torch.Tensor:
        return torch.cat([self.cast.pixels(role) for role in ATTACKED])


def ran(line: str, folder: Path, *facts: Any, **more: Any) -> Run:
    seen = watched.watch()
    small_ran(tiny(line), folder / "RUN")
    return Run(folder / "RUN", seen, *facts, **more)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All images under attack share the attacked rounds 3 and 4."""
    line = f"{ACTIVE}--attacks {W}:Weighs,{W}:Pushes"
    return ran(line, tmp_path_factory.mktemp("together"), 2, [3, 4], 4)


@pytest.fixture(scope="module")
def partial(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Half of the clients a round: of four attacked rounds two are the attacker's."""
    folder = tmp_path_factory.mktemp("partial")
    return ran(PARTIAL, folder, 4, [6, 8], 8, seed=4, share=0.5, active=f"{W}:Glances")


@pytest.fixture(params=["together", pytest.param("partial", marks=pytest.mark.slow)])
def run(request: pytest.FixtureRequest) -> Run:
    run: Run = request.getfixturevalue(request.param)
    return run


def test_sent__is_changed_by_nobody(run: Run) -> None:
    """What is sent is not copied inside a process: not the clients who receive a model, not the
    client who sent an update and trains on, not the server may change it."""
    assert run.seen.stays() and len(run.seen.kept) > 40


def test_branches__begin_where_they_share_a_round(run: Run) -> None:
    models, phases = run.seen.models, run.seen.phases
    assert [(p.branch, p.first, p.last) for p in phases] == [
        ("main", 0, run.clean), ("main", run.clean, run.last), ("zero", run.clean, run.last),
        ("placebo", 0, run.clean), ("placebo", run.clean, run.last),
        ("untrained", run.clean, run.last),
    ]  # fmt: skip
    assert [p.craft for p in phases] == [False, True, True, False, True, True]
    assert all((p.malicious, p.total) == ((run.holder,), run.last) for p in phases)
    first = [models["main", 0], models["placebo", 0], models["untrained", run.clean]]
    assert same(first[0], first[1]) and same(first[0], first[2])
    assert same(models["main", run.clean], models["zero", run.clean])
    honest = [run.seen.uploads[b, run.clean + 1] for b in ("main", "zero", "placebo")]
    for client in {*honest[0]} - {run.holder}:  # from the same states of clients, on what images
        same_images = [same(one[client], honest[0][client]) for one in honest[1:]]
        assert same_images == [True, False]
    ends = [models[branch, run.last] for branch in ("main", "zero", "placebo", "untrained")]
    assert all(not same(one, other) for i, one in enumerate(ends) for other in ends[:i])


def test_cohorts__are_those_of_the_seed_in_every_branch(run: Run) -> None:
    phase = Phase("", 0, run.last, False, run.share, run.seed)
    for (_, round), uploads in run.seen.uploads.items():
        assert [*uploads] == draw_cohort(phase, round, 4)
    assert [r for r in run.took_part(run.holder) if r > run.clean] == run.attacked


def test_upload__of_the_attacker_is_what_its_attack_made_of_the_model_it_received(
    run: Run,
) -> None:
    """In the rounds that it may craft in, once each; where nothing acts it sends that back."""
    crafted = [(turn, made) for turn, made in run.seen.turns if not turn.alone]
    assert len(crafted) == 4 * len(run.attacked)
    for branch in ("main", "zero", "placebo", "untrained"):
        mine = [one for (at, _), one in run.seen.uploads.items() if at == branch]
        of_rounds = dict(zip((r for b, r in run.seen.uploads if b == branch), mine, strict=True))
        for number, round in enumerate(run.attacked):
            received = run.seen.models[branch, round - 1]
            upload = of_rounds[round][run.holder]
            turns = [t for t, made in crafted if same(made, upload) and same(t.received, received)]
            assert len(turns) == 1 and (turns[0].number, turns[0].turns) == (
                number, len(run.attacked),
            )  # fmt: skip
            assert same(upload, received) is (branch == "zero")
            if branch == "untrained":
                assert all(same(up, received) for c, up in of_rounds[round].items() if c != 3)


def test_attacker__has_the_images_that_it_may_have(run: Run) -> None:
    """The targets come in an order without truth; what it holds is its own and the known."""
    names = {role: {*digests(run.cast.pixels(role).numpy())} for role in ATTACKED}
    known, share = names["known_members"] | names["known_nonmembers"], 1 / (4 * run.share)
    scored = names["scored_members"] | names["scored_nonmembers"]
    own = {*digests(run.cast.client_images(run.holder).numpy())}
    assert not known & scored and not own & scored and len(own) > 3
    whole = [turn for turn, _ in run.seen.turns if not turn.alone]
    for turn in whole:
        assert {*digests(turn.targets.numpy())} == known | scored
        assert turn.share == share
        assert turn.held is not None and {*digests(turn.held.numpy())} == own | known
        assert {*digests(turn.known.members.numpy())} == names["known_members"]
        assert {*digests(turn.known.nonmembers.numpy())} == names["known_nonmembers"]
    truth = np.isin(
        digests(whole[0].targets.numpy()),
        [*names["known_members"], *names["scored_members"]],
    )
    n, m = int(truth.sum()), int((~truth).sum())
    ranks = rankdata(np.arange(len(truth)))[truth].sum()
    # The deviation of an AUC of exchangeable ranks; 4 of them: 1 seed in 16,000 fails by luck.
    assert abs((ranks - n * (n + 1) / 2) / (n * m) - 0.5) < 4 * ((n + m + 1) / (12 * n * m)) ** 0.5


def of_all(run: Run, value: float, images: torch.Tensor | None = None) -> Any:
    """What is read of images under a model of that number, in ascending order."""
    return np.sort(value + brightness(run.attacked_images() if images is None else images))


@pytest.mark.parametrize("branch", ["main", "zero", "placebo", "untrained"])
def test_trajectory__is_of_the_models_and_uploads_of_its_own_branch(run: Run, branch: str) -> None:
    """Before: what the client received; after: what it received next, or the last model."""
    received = [*run.attacked, run.last + 1]
    scored = torch.cat([run.cast.pixels(role) for role in SCORED])
    found = 0
    for seen in run.seen.judged:
        if seen.rounds != run.attacked or seen.before.shape[1] != len(scored):
            continue
        values = [run.totals[branch, r - 1] for r in received]
        if not np.allclose(np.sort(seen.before[0]), of_all(run, values[0], scored), atol=1e-9):
            continue
        if not np.allclose(np.sort(seen.after[-1]), of_all(run, values[-1], scored), atol=1e-9):
            continue
        found += 1
        for i, round in enumerate(run.attacked):
            sent = total(run.seen.uploads[branch, round][run.holder])
            read = [(seen.before[i], values[i]), (seen.after[i], values[i + 1])]
            read += [(seen.sent[i], sent)] if i < len(seen.sent) else []
            for got, want in read:
                np.testing.assert_allclose(np.sort(got), of_all(run, want, scored), atol=1e-9)
        assert len(seen.sent) == (1 if "Glances" in run.active else len(run.attacked))
    assert found >= 1


def test_sets__are_read_in_a_round_of_their_own_beside_the_same_without_an_act(run: Run) -> None:
    """The first attacked round, played again for each set of images: with what the honest clients
    sent in it, and the upload for that set alone."""
    first, seen = run.attacked[0], run.seen
    turns = {digests(t.targets.numpy())[0]: (t, made) for t, made in seen.turns if t.alone}
    replays = [one for one in seen.replays if same(one.received, seen.models["main", first - 1])]
    assert len(replays) == len(turns) + 1 and len(turns) > 5
    honest = {c: up for c, up in seen.uploads["main", first].items() if c != run.holder}
    ends = dict[float, float]()
    for one in replays:
        assert one.round == first and one.uploads.keys() == seen.uploads["main", first].keys()
        assert all(same(one.uploads[c], upload) for c, upload in honest.items())
        ends[total(one.uploads[run.holder])] = total(one.ended)
    still = ends[run.totals["main", first - 1]]
    assert abs(still - run.totals["zero", first]) < 1e-9
    images, sent = torch.cat([t.targets for t, _ in turns.values()]), list[float]()
    for turn, made in turns.values():
        assert same(turn.received, seen.models["main", first - 1])
        sent += [total(made)] * len(turn.targets)
    assert len({*digests(images.numpy())}) == len(images) and len(set(sent)) == len(turns)
    read, before = brightness(images), run.totals["main", first - 1]
    acted, idle = (
        next(j for j in seen.judged if j.before.shape == (1, len(images)) and same_before == (
            np.allclose(j.before, j.sent)))
        for same_before in (False, True)
    )  # fmt: skip
    for trajectory, sides in (
        (acted, (np.array(sent), np.array([ends[s] for s in sent]))),
        (idle, (np.full(len(images), before), np.full(len(images), still))),
    ):
        assert trajectory.rounds == [first]
        np.testing.assert_allclose(np.sort(trajectory.before[0]), np.sort(before + read), atol=1e-9)
        for got, want in zip((trajectory.sent, trajectory.after), sides, strict=True):
            np.testing.assert_allclose(np.sort(got[0]), np.sort(want + read), atol=1e-9)


def test_scores__are_of_the_last_model_before_the_attack_and_in_their_order(run: Run) -> None:
    """Those of an active attack are what it judged by, the model at the end."""
    table = run.opened.scores
    for name, at in ((f"{W}:Weighs", run.clean), (run.active, run.last)):
        for role in SCORED:
            rows = table[table.truth == (role == "scored_members")]
            want = run.totals["main", at] + brightness(run.cast.pixels(role))
            np.testing.assert_allclose(rows[name], want, atol=1e-9)
            assert rows.image.tolist() == run.cast.ids(role).tolist()
    rows = {row["name"]: row for row in run.report["attacks"]}
    assert [rows[n]["under_attack"] for n in (f"{W}:Weighs", run.active)] == [False, True]
    assert (rows[f"{W}:Weighs"]["round"], rows[run.active]["rounds"]) == (
        run.clean, run.attacked,
    )  # fmt: skip
    assert [row["under_attack"] for row in run.report["rounds"]] == [
        r > run.clean for r in range(1, run.last + 1)
    ]


def test_passive_attack__sees_its_branch_up_to_its_round(run: Run) -> None:
    """Of the models that its client received for its rounds, and the one that is attacked."""
    kept = {r - 1 for r in run.took_part(run.holder)} & {*run.recording.rounds()}
    found = set[tuple[str, int]]()
    for view in run.seen.scored:
        (at,) = {at for at in run.near(view["total"]) if at[0] in ("main", "placebo")}
        found.add(at)
        own = {r for r in kept if r <= at[1]} | {at[1]}
        assert view["received"] == {r: run.totals[at[0], r] for r in own}
        if at[1]:
            bank = run.recording.held(at[0]).get(at[1], {})
            assert at[0] == "placebo" or bank
            assert all(torch.equal(view["bank"][name], t) for name, t in bank.items())
    assert {("main", run.clean), ("main", run.last), ("placebo", run.clean)} <= found


def test_utility__is_that_of_the_scored_model_and_of_the_one_after_the_attack(run: Run) -> None:
    """And the loss of a round is that of honest clients, which train in all of their rounds."""
    report, records = run.report, run.recording.records["main"]
    knn = {row["round"]: row["knn"] for row in report["rounds"]}
    assert (report["utility"]["round"], report["utility"]["knn"]) == (run.clean, knn[run.clean])
    after = report["utility_after_attack"]
    assert (after["round"], after["knn"]) == (run.last, knn[run.last])
    spread = [r for r in range(1, 9) if r in {run.clean, run.last} or run.clean == 2]
    assert [row["round"] for row in report["rounds"] if row["leakage"]] == spread[: run.last]
    sizes = {c: len(run.cast.client_images(c)) for c in range(4)}
    for row in report["rounds"]:
        record, metrics = records[row["round"]], records[row["round"]].metrics
        assert record.examples == {c: sizes[c] for c in record.cohort} and record.seconds > 0
        assert record.cohort == [c for c in range(4) if row["round"] in run.took_part(c)]
        losses = {c: told["loss"] for c, told in metrics.items() if "loss" in told}
        mine = losses.pop(run.holder, None)
        assert row["loss"] == pytest.approx(np.mean([*losses.values()]), abs=1e-6)
        assert len(losses) == len([c for c in metrics if c != run.holder])
        took = row["round"] in run.took_part(run.holder)
        assert (mine is not None) is (took and row["round"] <= run.clean)


def test_timing__parts_are_disjoint_and_whole(run: Run) -> None:
    timing = {n: s for n, s in run.report["timing"].items() if isinstance(s, float | int)}
    whole = timing.pop("total_s")
    assert sum(timing.values()) == pytest.approx(whole, abs=0.01)
    assert min(timing.values()) >= 0 and timing["train"] > 0 and timing["attacks"] > 0


def test_readings__are_taken_with_the_bank_that_the_client_kept(together: Run) -> None:
    """Its last before it crafted; of a model that nobody trained, keys of its own images."""
    bank, found = together.recording.held()[2], 0
    for number, kept in together.seen.banks.items():
        of = {branch for branch, _ in together.near(number)}
        same_bank = {all(torch.equal(one[name], bank[name]) for name in bank) for one in kept}
        if of & {"main", "zero"} and ("untrained", 2) not in together.near(number):
            found += 1
            assert same_bank == {True}
        elif of & {"placebo", "untrained"}:
            assert same_bank == {False}
    assert found == 5  # of main the second to the fourth, of its control two more


def test_recording__has_what_was_asked_and_the_attackers_bank_rests(together: Run) -> None:
    """It trains no more once it crafts; of the controls no model stays."""
    seen, recording = together.seen, together.recording
    for round in range(5):
        assert same(recording.load("main", round)[0], seen.models["main", round])
    for (branch, round), uploads in seen.uploads.items():
        if branch == "main":
            kept = recording.updates()[round]
            assert list(kept) == [0, 1, 2, 3] and all(same(kept[c], uploads[c]) for c in kept)
    banks = recording.held()
    assert [*banks] == [1, 2, 3, 4] and banks[2] and same(banks[2], banks[4])
    assert not same(banks[1], banks[2])
    files = {p.relative_to(together.folder / "recording").as_posix()
             for p in (together.folder / "recording").rglob("*") if p.is_file()}  # fmt: skip
    notes = [f"notes/{b}/000{r}" for b in ("main", "zero", "placebo", "untrained") for r in (3, 4)]
    want = [f"models/main/000{r}" for r in range(5)] + [f"held/main/000{r}" for r in range(1, 5)]
    want += notes + [f"updates/main/000{r}/000{c}" for r in range(1, 5) for c in range(4)]
    assert files == {f"{name}.safetensors" for name in (*want, "attacker", "cast")} | {
        "recording.json", "rounds.jsonl",
    }  # fmt: skip


@pytest.mark.slow
def test_batches__are_read_in_a_round_of_their_own_in_every_branch(tmp_path: Path) -> None:
    """Known images apart from those under test; each image once, whatever fills a short batch."""
    run = ran(f"{ACTIVE}--attacks {W}:Batched", tmp_path, 2, [3, 4], 4)
    known = {*digests(torch.cat([run.cast.pixels(r) for r in ATTACKED[2:]]).numpy())}
    images, scored = run.attacked_images(), torch.cat([run.cast.pixels(r) for r in SCORED])
    for branch, before in (("main", 2), ("placebo", 2), ("untrained", 0)):
        start = run.seen.models["main" if branch == "untrained" else branch, before]
        made = [(t, up) for t, up in run.seen.turns if t.alone and same(t.received, start)]
        made = [(t, up) for t, up in made if len(t.targets) != 8]  # those of sets, in `main`
        replays = [one for one in run.seen.replays if same(one.received, start)]
        ends = {total(one.uploads[run.holder]): total(one.ended) for one in replays}
        of = dict[bytes, set[float]]()
        for turn, upload in made:
            names = digests(turn.targets.numpy())
            assert len(names) == 16 and len({name in known for name in names}) == 1
            for name in names:
                of.setdefault(name, set()).add(total(upload))
        assert of.keys() == {*digests(images.numpy())} and len(ends) > len(made)
        rows = {round(float(b), 9): name for b, name in zip(
            brightness(scored), digests(scored.numpy()), strict=True)}  # fmt: skip
        (seen,) = (
            j for j in run.seen.judged
            if j.before.shape == (1, len(scored)) and not np.allclose(j.before, j.sent)
            and np.allclose(np.sort(j.before[0]), of_all(run, total(start), scored), atol=1e-9)
        )  # fmt: skip
        assert seen.rounds == [3]
        for received, sent, after in zip(seen.before[0], seen.sent[0], seen.after[0], strict=True):
            read = received - total(start)
            name = rows[min(rows, key=lambda b: abs(b - read))]
            (upload_of,) = (u for u in of[name] if abs(u + read - sent) < 1e-9)
            assert abs(ends[upload_of] + read - after) < 1e-9


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Run:
    line = f"--attacker server --strategy {W}:Mean --attacks {W}:OnServer "
    line += "--federation.keep_updates 4 --federation.snapshots 2"
    return ran(line, tmp_path_factory.mktemp("server"), 4, [], 4)


def test_servers_view__holds_no_update_of_a_later_round_or_another_branch(server: Run) -> None:
    rounds = set[tuple[str, int]]()
    for view in server.seen.scored:
        ((branch, round),) = {at for at in server.near(view["total"]) if at != ("untrained", 0)}
        rounds.add((branch, round))
        assert view["updates"] == {
            r: {c: total(up) for c, up in server.seen.uploads[branch, r].items()}
            for r in range(1, round + 1)
        }
        before = {r: server.totals[branch, r - 1] for r in range(1, round + 1)}
        assert view["before"] == before
    assert {("main", 2), ("main", 4), ("placebo", 4)} <= rounds


@pytest.mark.slow
def test_dataset_inference__asks_of_each_clients_own_members_on_the_scored_model(
    tmp_path: Path,
) -> None:
    """Its statistic is `similarity`'s score, so its differences can be told from those."""
    names = "similarity", "dataset-inference"
    line = tiny(f"--attacker passive --attacks {','.join(names)}")
    line += "".join(f" --attack.{n}.views 4" for n in names)
    report = small_ran(line, tmp_path / "R")
    table = fedmia.open_run(tmp_path / "R").scores
    (inference,) = report["dataset_inference"]
    rest = table[~table.truth]
    for row in inference["clients"]:
        mine = table[(table.client == row["client"]) & table.label.isin(rest.label)]
        means = rest.groupby("label").similarity.mean()
        gaps = mine.similarity - means[mine.label].to_numpy()
        assert (row["n"], row["difference"]) == (len(mine), pytest.approx(gaps.mean(), abs=1e-6))
    assert {row["client"] for row in inference["clients"]} == {*table.client.dropna()}
