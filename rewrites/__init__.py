"""The rules, by theme; each name is a tuple of Rewrite."""

from rewrites.linear import LINEAR

DEFAULT = LINEAR
