"""fedmia from Python: simulate, audit and compare, with the options of the command line.

`fedmia.run_simulation`, `fedmia.audit_encoder` and `fedmia.run_study` are the way in; `fedmia`
exports them. They take the settings of the commands, and in place of names also objects: attacks,
data and networks of a notebook. Start with `simulation`.

- `arguments`: keyword arguments as the settings of a command
- `plugins`: classes and instances as names and options
- `images`: arrays, tensors, data sets and folders as a data source
- `networks`: a function that returns a torch module as a network to train
- `simulation`, `auditing`, `studies`: the three functions
"""
