"""Descriptions of operators in other people's formats, as drafts of contracts. The verifier never imports these."""
