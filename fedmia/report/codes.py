"""The codes of a verdict, and what groups of them have in common."""

NO_VERDICT = "no-verdict"  # the run ended before its first round
UNTESTED = "untested"  # no attack has scores
LEAKS = ("leaks", "leaks-uncontrolled")  # attacks tell members apart
UNSOUND = ("shift", "control-failed")  # no attack says a thing of training
VOID = (*UNSOUND, "collapsed", UNTESTED, NO_VERDICT)  # nothing follows from the run's numbers
CODES = (*LEAKS, *VOID, "not-established")
