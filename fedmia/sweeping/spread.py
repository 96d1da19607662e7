"""Statistics between models, under the names of `fedmia.statistics`."""

from fedmia.statistics.pvalues import holm as holm
from fedmia.statistics.spread import DIGITS as DIGITS
from fedmia.statistics.spread import p_value as p_value
from fedmia.statistics.spread import spread as spread
from fedmia.statistics.spread import t_interval as t_interval
from fedmia.statistics.spread import within as within
