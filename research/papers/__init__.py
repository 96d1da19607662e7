"""The tables and figures of the five papers, each by one command.

`entries` reads what a table asks for from `tables/PAPER.yaml`; `jobs` are encoders, audits,
heads and federations, which `fedmia.study.scheduler` makes, each once; `central` trains an encoder
without Flower; `cells` reads a number off a finished job; `tables`, `drawing` and `claims` make of
the numbers what the paper prints.
"""
