"""FedDyn (Acar et al., ICLR 2021)."""
