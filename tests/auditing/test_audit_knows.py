"""`--knows nonmembers`: an attacker that knows non-members and no member."""

from __future__ import annotations

from tests.auditing.conftest import Audit

FLAGS = "--attacks similarity,lpla,stacking,dataset-inference --known 6 "


def test_nonmembers__run_what_needs_no_member_and_choose_no_threshold(audit: Audit) -> None:
    both = audit(FLAGS)
    alone = audit(f"{FLAGS} --knows nonmembers --sweep known=3")
    assert (both.code, alone.code) == (0, 0)
    assert alone.not_run == {
        name: f"{name} learns from known members, this attacker knows none"
        for name in ("lpla", "stacking")
    }
    row, same = alone.report["attacks"][0], both.report["attacks"][0]
    assert row["auc"] == same["auc"] and row["n_members"] == same["n_members"]
    assert same["threshold_source"] == "known" and same["accuracy"] is not None
    assert row["threshold_source"] is None and row["accuracy"] is None
    assert row["queries"] == same["queries"] - 3 * 12  # that choose the threshold
    sets = [done.report["dataset_inference"][0]["clients"][0] for done in (both, alone)]
    assert sets[0]["p_value"] == sets[1]["p_value"]
    pixels = [done.report["pixels"]["auc"] for done in (both, alone)]
    assert pixels[0] == pixels[1]  # the auditor, whose control it is, knows both sides
    counts = [done.report["split"]["known_members"] for done in (both, alone)]
    assert counts == [6, 0] and alone.report["split"]["known_nonmembers"] == 6
    note = "The attacker knows non-members alone: none chooses a threshold."
    assert note in alone.report["notes"] and note not in both.report["notes"]
    (point,) = alone.report["sweep"]
    assert (point["attack"], point["known"]) == ("similarity", 3)
