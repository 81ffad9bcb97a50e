"""The two presets once more, by plain loops over numbers: slow, and like the equations to read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lookright.evidence import EvidenceArray

Vector = list[float]
FLOOR = 1e-8


def observed(calibration: EvidenceArray, mean: Callable[[Sequence[float]], float]) -> list[Vector]:
    """[target's position][answer], some mean over the samples and orders with the target there."""
    cells: list[list[Vector]] = [[[] for _ in range(calibration.n)] for _ in range(calibration.n)]
    p, m, n = calibration.log_probs.shape
    for i in range(p):
        for j in range(m):
            where = list(calibration.orders[i, j]).index(calibration.targets[j])
            for k in range(n):
                cells[where][k].append(float(calibration.log_probs[i, j, k]))
    return [[mean(cell) for cell in row] for row in cells]


def log_of_mean(logs: Sequence[float]) -> float:
    return math.log(sum(math.exp(value) for value in logs) / len(logs))


def mean_of_logs(logs: Sequence[float]) -> float:
    return sum(logs) / len(logs)


def gain(matrix: list[Vector]) -> float:
    n = range(len(matrix))
    return max(matrix[i][i] - matrix[i][j] for i in n for j in n if i != j)


def attention_prior(calibration: EvidenceArray) -> list[Vector]:
    """[layer][position]"""
    p, m, n = calibration.log_probs.shape
    total = [[0.0] * n for _ in calibration.layers]
    for i in range(p):
        for j in range(m):
            for layer in range(len(calibration.layers)):
                for k in range(n):
                    total[layer][k] += float(calibration.attention[i, j, layer, k])
    return [[value / (p * m) for value in row] for row in total]


def heaviest(attention: Sequence[Sequence[float]], allowed: Sequence[int], k: int) -> list[int]:
    """The k allowed layers of largest mass, the lower one first among equals."""
    return sorted(allowed, key=lambda layer: (-sum(attention[layer]), layer))[:k]


def softmax(values: Vector) -> Vector:
    powers = [math.exp(value - max(values)) for value in values]
    return [power / sum(powers) for power in powers]


def paper_lad(
    log_probs: Vector,
    attention: list[Vector],
    calibration: EvidenceArray,
    k: int = 2,
    tau: float = 5.0,
) -> Vector:
    n = range(len(log_probs))
    matrix = observed(calibration, log_of_mean)
    log_gamma = gain(matrix)
    bias = [[math.exp(matrix[i][j] - (log_gamma if i == j else 0)) for j in n] for i in n]
    prior = attention_prior(calibration)
    chosen = heaviest(attention, range(len(attention)), k)
    log_pi = [
        sum(math.log(max(attention[x][i], FLOOR)) - math.log(prior[x][i]) for x in chosen)
        / len(chosen)
        for i in n
    ]
    pi = softmax([tau * value for value in log_pi])
    return [log_probs[j] - math.log(sum(pi[i] * bias[i][j] for i in n)) for j in n]


def released_lad(log_probs: Vector, attention: list[Vector], calibration: EvidenceArray) -> Vector:
    n = range(len(log_probs))
    matrix = observed(calibration, mean_of_logs)
    boost = gain(matrix)
    base = sum(map(sum, matrix)) / len(n) ** 2 - boost / len(n)
    bias = [[matrix[i][j] - (base + (boost if i == j else 0)) for j in n] for i in n]
    prior = attention_prior(calibration)
    allowed = [x for x, number in enumerate(calibration.layers) if 21 <= number <= 35]
    chosen = heaviest(attention, allowed, 2)
    log_pi = [
        math.log(sum(attention[x][i] for x in chosen) / len(chosen))
        - sum(math.log(prior[x][i]) for x in chosen) / len(chosen)
        for i in n
    ]
    pi = softmax([5 * value for value in log_pi])
    return [log_probs[j] - sum(pi[i] * bias[i][j] for i in n) for j in n]
