"""Every sentence of a finding: a function of rows for each, and how a number reads in one.

What follows from the rows is judged by `fedmia.report.judgement`, which has no words: a module here
says it. Page, terminal, model card, gate and log print what these return.
"""
