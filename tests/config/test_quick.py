"""`--attacks quick`: the attacks without a long computation, alone or among others."""

from __future__ import annotations

from fedmia.config.audit import expand_names as of_audit
from fedmia.config.experiment import expand_attacks as of_run


def test_quick__in_an_audit_and_in_a_run() -> None:
    quick = of_audit(("quick",))
    assert quick == ("combined", "grad-norm", "internal", "lpla", "similarity")
    assert of_audit(("quick", "partcrop", "lpla")) == (*quick, "partcrop")
    assert set(quick) <= set(of_run(("quick",), "passive"))
    active = of_run(("quick",), "active")
    assert not {"ascent", "lira", "rmia", "encodermi-v"} & {*active}
