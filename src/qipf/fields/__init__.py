"""The mathematics of the paper: fields, potentials, bandwidths and information measures, as functions of arrays."""
