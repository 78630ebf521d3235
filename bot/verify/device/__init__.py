"""What the verifier does on a CUDA device."""
