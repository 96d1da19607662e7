"""Tables and figures of Chen et al., "Membership Information Leakage in Federated Contrastive
Learning", from the folder of one run."""
