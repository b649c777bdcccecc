"""FLIX, first called FedMix (Gasanov et al., 2021): its experiments."""
