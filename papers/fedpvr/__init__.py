"""What FedPVR's figures show, in small: which layers drift apart."""
