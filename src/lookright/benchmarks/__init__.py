"""Benchmarks: lists of instances, read, written and built."""
