"""`--attacks quick`: the attacks without a long computation, alone or among others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedmia.settings.commands.audit_attacks import expand_names as of_audit
from fedmia.settings.commands.experiment import expand_attacks as of_run


def test_quick__in_an_audit_and_in_a_run() -> None:
    quick = of_audit(("quick",))
    assert quick == ("combined", "grad-norm", "internal", "lpla", "similarity")
    assert of_audit(("quick", "partcrop", "lpla")) == (*quick, "partcrop")
    assert set(quick) <= set(of_run(("quick",), "passive"))
    active = of_run(("quick",), "active")
    assert not {"ascent", "lira", "rmia", "encodermi-v"} & {*active}


def test_auto__the_quick_ones_and_those_that_an_option_is_given_for() -> None:
    quick, given = set(of_audit(("quick",))), {"shadow.count": 0}
    assert set(of_audit(("auto",), given)) == quick == set(of_audit(("auto",)))

    def beside(asks: Mapping[str, object], own: Sequence[str] = ()) -> set[str]:
        return set(of_audit(("auto",), {**given, **asks}, own)) - quick

    read = {"baseline-a", "bavaria", "encodermi-v", "lira", "rmia", "sslmem"}
    for option in ({"shadow.count": 2}, {"shadow.encoders": "DIR"}):
        assert read <= beside(option) and not {"lira-rounds", "partcrop"} & beside(option)
    assert beside({"groups": "patient"}) == {"dataset-inference"}
    assert beside({}, ["partcrop"]) == {"partcrop"}
    rounds = {"all-for-one", "lira-rounds", "loss-slope", "rmia-rounds"}
    for option in ({"federation.recording": "REC"}, {"encoder.checkpoint": "no-such/*.npz"}):
        assert rounds <= beside(option) and not {"ascent", "lira"} & beside(option)
    assert not beside({"encoder.checkpoint": "FILE.pth"})
    assert "ascent" in beside({"federation.recording": "REC", "federation.notes": "NOTES"})
