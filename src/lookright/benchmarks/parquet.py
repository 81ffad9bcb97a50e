"""Benchmarks from a Parquet file: captioned images, or questions with lists of images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lookright.benchmarks.draws import Draws
from lookright.benchmarks.build import Drawn, Recipe
from lookright.benchmarks.pool import Pool, Vectors
from lookright.errors import InputError, shown
from lookright.images import check_file, resolve
