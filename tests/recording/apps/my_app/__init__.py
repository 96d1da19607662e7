"""Plain SimCLR on Flower, by FedAvg or by a loop of its own; three lines of it record."""
