"""FedDisk: densities learned federatedly become sample weights; a file for each part."""
