"""FedDC (Gao et al., CVPR 2022)."""
