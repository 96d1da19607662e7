"""Objects of a Python session as what the commands take: names, options and settings.

- `arguments`: keyword arguments as the settings of a command
- `plugins`: classes and instances as names and options
- `images`: arrays, tensors, data sets and folders as a data source
- `networks`: a function that returns a torch module as a network to train
- `results`: folders of results; Ctrl-C and threads as they were
"""
