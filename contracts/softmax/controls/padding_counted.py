"""Rows are filled up with zeros to a multiple of 64, and the zeros are counted in the sum."""

import torch


def run(x, output):
    width = x.shape[1]
    rows = torch.nn.functional.pad(x.float(), (0, -width % 64))
    output.copy_(torch.softmax(rows, -1)[:, :width])
