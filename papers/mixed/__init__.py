"""Mixed federated learning (Augenstein et al., 2022): its experiments in small."""
