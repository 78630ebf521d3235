"""The epsilon is added to the root instead of below it: no difference unless a row is tiny."""


def run(x, output):
    rows = x.float()
    output.copy_(rows / (rows.pow(2).sum(-1, keepdim=True).sqrt() + 1e-6))
