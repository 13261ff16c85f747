"""Where a graph leads back to itself: strongly connected components, and dominators inside one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import networkx as nx


def strongly_connected(successors: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """The strongly connected components of a graph, each after those it leads to (Tarjan 1972, as a
    loop).
    """
    components: list[list[int]] = []
    index: dict[int, int] = {}
    low: dict[int, int] = {}  # of what is on the stack
    stack: list[int] = []
    for start in successors:
        if start in index:
            continue
        path = [(start, iter(successors[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while path:
            node, waiting = path[-1]
            for child in waiting:
                if child not in index:
                    path.append((child, iter(successors[child])))
                    index[child] = low[child] = len(index)
                    stack.append(child)
                    break
                if child in low and low[child] < low[node]:
                    low[node] = low[child]
            else:
                path.pop()
                if path and low[node] < low[path[-1][0]]:
                    low[path[-1][0]] = low[node]
                if low[node] == index[node]:
                    component: list[int] = []
                    while not component or component[-1] != node:
                        component.append(stack.pop())
                        del low[component[-1]]
                    components.append(component)
    return components


def dominating(
    successors: Mapping[int, Sequence[int]], loop: list[int], entered: set[int]
) -> list[tuple[int, int]]:
    """The pairs of one loop. Paths come into a loop once, so the dominators inside it tell all."""
    inside = set(loop)
    edges = [(cls, child) for cls in loop for child in successors[cls] if child in inside]
    graph: nx.DiGraph[int] = nx.DiGraph(edges)
    graph.add_edges_from((-1, cls) for cls in loop if cls in entered)
    tree: dict[int, list[int]] = {node: [] for node in graph}
    for node, above in nx.immediate_dominators(graph, -1).items():
        if node != -1:
            tree[above].append(node)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    stack = [-1]
    while stack:
        node = stack.pop()
        if node in first:
            last[node] = len(first)
            continue
        first[node] = len(first)
        stack += [node, *tree[node]]
    return [(cls, child) for cls, child in edges if first[child] < first[cls] < last[child]]
