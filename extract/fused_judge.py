"""The judge of fused extractions: it runs every kernel step by step and adds up what it moves."""

from __future__ import annotations

from dataclasses import dataclass, field

from extract.fusible import Fusion, FusionProblem
from extract.program import Fused, Kernel
from extract.selection import TOLERANCE, InvalidSelection, Status


def fused_judge(problem: FusionProblem, fused: Fused) -> None:
    """Raises InvalidSelection unless the kernels can be launched in their order, each is allowed,
    they leave the roots in memory by the e-nodes that are chosen, and they cost what is said.

    It shares no code with the extraction, so that no mistake of that can hide here.
    """
    memory = _Memory(problem, fused.selection.choice.tolist())
    total = 0.0
    for number, kernel in enumerate(fused.kernels):
        where = f"kernel {number}"
        for enode in kernel.enodes:
            memory.check_chosen(enode, where)
        if len(kernel.enodes) == 1 and problem.fusion[kernel.enodes[0]] == Fusion.OPAQUE:
            total += memory.run_opaque(kernel, where)
        else:
            total += memory.run(kernel, where)
    for root in problem.egraph.roots:
        if not memory.holds(root):
            raise InvalidSelection(f"the root class {root} is not in memory at the end")
    selection = fused.selection
    slack = TOLERANCE * total
    if abs(selection.cost - total) > slack:
        raise InvalidSelection(f"it says that it costs {selection.cost}; its kernels cost {total}")
    if selection.lower_bound > total + slack:
        raise InvalidSelection(f"the bound {selection.lower_bound} is above the cost {total}")
    if selection.status is Status.OPTIMAL and selection.lower_bound < total - slack:
        raise InvalidSelection(f"said to be optimal, but the bound is {selection.lower_bound}")


@dataclass
class _Memory:
    """What is in memory while kernels run: the classes that were written."""

    problem: FusionProblem
    choice: list[int]
    written: set[int] = field(default_factory=set[int])

    def check_chosen(self, enode: int, where: str) -> None:
        egraph = self.problem.egraph
        if not 0 <= enode < egraph.num_nodes or self.choice[int(egraph.node_class[enode])] != enode:
            raise InvalidSelection(f"{where} computes the e-node {enode}, which is not chosen")

    def children(self, enode: int) -> list[int]:
        egraph = self.problem.egraph
        first, last = int(egraph.child_ptr[enode]), int(egraph.child_ptr[enode + 1])
        return egraph.children[first:last].tolist()

    def holds(self, cls: int) -> bool:
        """Whether a class is in memory: given, written, or by chosen views of such a class."""
        for _ in range(self.problem.egraph.num_classes):
            enode = self.choice[cls]
            if cls in self.written:
                return True
            if enode < 0:
                return False
            if self.is_view(enode):
                cls = self.children(enode)[0]
                continue
            given = self.problem.fusion[enode] == Fusion.OPAQUE and not self.children(enode)
            return bool(given) and self.problem.egraph.node_cost[enode] == 0
        return False

    def is_view(self, enode: int) -> bool:
        return self.problem.fusion[enode] in (Fusion.VIEW, Fusion.MOVE)

    def run_opaque(self, kernel: Kernel, where: str) -> float:
        """The cost of an opaque e-node, whose operands are in memory."""
        enode = kernel.enodes[0]
        for child in self.children(enode):
            if not self.holds(child):
                raise InvalidSelection(f"{where} needs class {child}, which is not in memory")
        if kernel.writes != (int(self.problem.egraph.node_class[enode]),):
            raise InvalidSelection(f"{where} does not write {kernel.writes}")
        self.written.update(kernel.writes)
        return float(self.problem.egraph.node_cost[enode])

    def run(self, kernel: Kernel, where: str) -> float:
        """The cost of a kernel that computes its e-nodes one by one from what it reads."""
        problem, caps = self.problem, self.problem.caps
        for cls in kernel.reads:
            if not self.holds(cls):
                raise InvalidSelection(f"{where} reads class {cls}, which is not in memory")
        if len(set(kernel.reads)) > caps.reads or len(kernel.enodes) > caps.enodes:
            raise InvalidSelection(f"{where} reads or computes more than {caps} allow")
        computed: dict[int, int] = {}  # class -> domain of the reductions below it, or -1
        work = 0.0
        for enode in kernel.enodes:
            below = {self.find(kernel, computed, c, enode, where) for c in self.children(enode)}
            computed[int(problem.egraph.node_class[enode])] = self.apply(enode, below - {-1}, where)
            work += 0.0 if self.is_view(enode) else float(problem.egraph.node_cost[enode])
        if len({domain for domain in computed.values() if domain >= 0}) > 1:
            raise InvalidSelection(f"{where} reduces over two domains")
        for cls in kernel.writes:
            if cls not in computed:
                raise InvalidSelection(f"{where} writes class {cls}, which it does not compute")
        self.written.update(kernel.writes)
        moved = sum(float(problem.read[cls]) for cls in set(kernel.reads))
        moved += sum(float(problem.write[cls]) for cls in set(kernel.writes))
        return problem.launch + moved + work

    def find(
        self, kernel: Kernel, computed: dict[int, int], cls: int, user: int, where: str
    ) -> int:
        """The domain below a class that is computed, read, or a view of such; -1 for none."""
        views = [user]
        for _ in range(self.problem.egraph.num_classes):
            if cls in computed:
                if computed[cls] >= 0 and any(
                    self.problem.fusion[view] == Fusion.MOVE for view in views
                ):
                    raise InvalidSelection(f"{where} moves what it has reduced, class {cls}")
                return computed[cls]
            if cls in kernel.reads:
                return -1
            enode = self.choice[cls]
            if enode >= 0 and self.is_view(enode):
                views.append(enode)
                cls = self.children(enode)[0]
                continue
            if enode >= 0 and self.holds(cls) and self.problem.read[cls] == 0:
                return -1  # a number, which takes no memory
            break
        raise InvalidSelection(f"{where} needs class {cls}, which it neither reads nor computes")

    def apply(self, enode: int, below: set[int], where: str) -> int:
        """The domain below the result of an e-node whose operands have some `below` them."""
        problem = self.problem
        kind, cls = Fusion(int(problem.fusion[enode])), int(problem.egraph.node_class[enode])
        if kind is Fusion.OPAQUE:
            raise InvalidSelection(f"{where} has the opaque e-node {enode} inside")
        if kind is Fusion.REDUCTION:
            below = below | {int(problem.domain[enode])}
        if len(below) > 1:
            raise InvalidSelection(f"{where} reduces over two domains, {sorted(below)}")
        domain = below.pop() if below else -1
        if domain >= 0 and kind is not Fusion.REDUCTION:
            outside, reduced = problem.domains[domain]
            if int(problem.numel[cls]) not in (outside, outside * reduced):
                raise InvalidSelection(f"{where} has class {cls} after a reduction of {domain}")
        return domain
