"""What departures from a fair protocol find where there is no membership to find.

A membership attack on an encoder is run as it should be, and then with one departure that a
published paper or its code makes: a `switch`. `plan.yaml` says which paper states which, and was
committed before its encoders were trained; `pipeline` runs an attack under switches, `images` draws
what it runs on, `summary` makes numbers over encoders. `command.measure_protocols` does it all.
"""
