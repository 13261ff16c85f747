"""Where a graph leads back to itself: strongly connected components, and dominators inside one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

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
    first, last = _dominated(edges, [cls for cls in loop if cls in entered])
    return [(cls, child) for cls, child in edges if first[child] < first[cls] < last[child]]


def enclosed(
    successors: Mapping[int, Sequence[int]], roots: Collection[int]
) -> list[tuple[int, frozenset[int]]]:
    """The classes that close off all that they lead to, with it and themselves; only the innermost,
    and none of the roots.
    """
    edges = [(cls, child) for cls, children in successors.items() for child in children]
    first, last = _dominated(edges, roots)
    order = sorted(successors, key=first.__getitem__)
    reach = {cls: last[cls] for cls in order}  # where edges from below a class end, on either side
    low = {cls: first[cls] for cls in order}
    stack: list[int] = []
    tops: list[tuple[int, frozenset[int]]] = []
    for cls in [*order, None]:
        while stack and (cls is None or first[cls] >= last[stack[-1]]):
            top = stack.pop()
            ends = [first[child] for child in successors[top]]
            low[top] = min([low[top], *ends])
            reach[top] = max([reach[top], *(end + 1 for end in ends)])
            if stack:
                low[stack[-1]] = min(low[stack[-1]], low[top])
                reach[stack[-1]] = max(reach[stack[-1]], reach[top])
            closed = low[top] >= first[top] and reach[top] <= last[top] > first[top] + 1
            if closed and top not in roots and not (tops and first[tops[-1][0]] > first[top]):
                inside = order[first[top] - 1 : last[top] - 1]  # number 0 is the entry's
                tops.append((top, frozenset(inside)))
        if cls is not None:
            stack.append(cls)
    return tops


def _dominated(
    edges: Sequence[tuple[int, int]], entered: Collection[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """The numbers of every node: it dominates those with a first one from its first up to its last.

    `entered` are the nodes where paths begin, from an entry of its own, -1.
    """
    graph: nx.DiGraph[int] = nx.DiGraph(edges)
    graph.add_edges_from((-1, node) for node in entered)
    tree: dict[int, list[int]] = {node: [] for node in graph}
    tree.setdefault(-1, [])
    if -1 in graph:
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
    return first, last
