"""Every sentence of a finding: a function of rows for each, and how a number reads in one.

What is found is judged elsewhere (`fedmia.report.judgement`, rows): a module here puts it into
words and computes nothing. Page, terminal, model card, gate and log print what these return.
"""
