"""FedDisk: sample weights from densities trained by federated learning; one file per stage."""
