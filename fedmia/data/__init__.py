"""Where images come from: one data source a file, each giving square uint8 images and labels.

Runs, audits and comparisons of heads load their images here; partitions and splits come later.
Start at `base.Dataset`, which a data source of your own subclasses, and at `images.ImageSet`.
"""
