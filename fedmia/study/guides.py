"""How to read each table of a study, as its page says it below the table."""

from __future__ import annotations

POINTS = (
    "A point is one combination of the options that vary. Each number is the mean over models, "
    "one for each seed, with Student's 95 % interval between models. The interval says how the "
    "mean would vary with other trainings on other splits. It does not cover the choice of images. "
    "With one model, or where all models are equal, there is no interval. Each interval covers one "
    "mean alone. What the attacks of a void run measure counts nowhere: its encoder collapsed, its "
    "control failed, its images differ without the model, or no attack ran."
)
PAIRS = (
    "A paired control is an attack on the same images without the step that is tested. p is of the "
    "two-sided t test over models that the mean difference is 0. Holm's p is corrected for all "
    "pairs and all sets of images of this page."
)
SETS = (
    "An attack scores a set of images, all members or all non-members. The score of a set is the "
    "mean of its images' scores (mean), or comes from gradient ascent on this set by itself "
    "(alone)."
)
BASELINE = (
    "Each difference compares an attack with the baseline on the same model and the same images. "
    "The table has its mean over models, one for each seed, with Student's 95 % interval between "
    "models. p is of the two-sided t test that the mean difference is 0. Holm's p is corrected for "
    "all comparisons of this table."
)
TRADEOFF = (
    "A point is one defence at one strength; its best attack has the largest mean AUC. Each number "
    "is the mean over models, one for each seed, with Student's 95 % interval between models. The "
    "interval says how the mean would vary with other trainings on other splits. There are no "
    "intervals without models of two seeds or more that differ. Under the AUC stand its 95 % "
    "interval and the simultaneous 95 % interval over all AUCs of this table and the next "
    "(Bonferroni over Student's intervals between models), which therefore also covers the choice "
    "of the best attack. Differences are to the undefended federation with the same seed. Epsilon "
    "is the largest of any defended client, over the whole run. No point beats one on the Pareto "
    "front in the means: none leaks less with at least the same kNN accuracy, or keeps more kNN "
    "accuracy with at most the same leakage. A defence is chosen among points that keep at least "
    "95 % of the undefended kNN accuracy in the mean and had no failed and no void run, and only "
    "where the simultaneous interval of the undefended federation lies over 0.5. The sentence "
    "above names the least leaking point, and the points that are not measurably worse. Together "
    "they contain the truly least leaking point with 95 % confidence: the tests are one-sided "
    "paired t tests over models with equal seeds, corrected for all comparisons. They are set bold "
    "where the undefended federation is none of them."
)
EVERY_ATTACK = "Mean AUC over models, with its 95 % interval and the simultaneous 95 % interval."
GROUPS = (
    "The members of each group of clients are compared with non-members weighted to the same class "
    "mix. Differences are paired by model. Each interval covers one mean alone."
)
ENCODERS = (
    "A 95 % interval covers the choice of images, for one number alone. Over several seeds a "
    "number is the mean, and so is each end of its interval. The mean of several seeds errs at "
    "most as much as one seed, so the interval is too wide rather than too narrow. The intervals "
    "do not cover other trainings of the same recipe. A difference compares the same attack on the "
    "same images; its second interval is simultaneous over all differences of this page."
)
