"""The tables of an e-graph, and the rules that no program of rewrites is without, in egglog."""

FACTS = ("constant", "finite", "given", "varying")  # relations of one class
FAMILY = ("forget", "enter", "leave", "part", "line")
"""The rulesets that find families of siblings anew, in their order: see `eqsat.siblings`."""
PROGRAM = (
    "(sort T)",
    "(constructor Node (i64) T)",
    "(function meta (T) String :merge old)",
    "(function rank (T) i64 :merge (min old new))",
    "(relation constant (T))",
    "(function interval (T) String :merge old)",
    "(relation finite (T))",
    "(relation given (T))",
    "(relation varying (T))",
    "(relation given_varying (i64))",
    "(relation pending (i64 T T))",
    "(relation sibling (T String i64))",
    "(function follower (T String i64) i64 :merge (min old new))",
    "(function eldest (T String) i64 :merge (min old new))",
    "(relation stretch (T String i64 T i64))",
    "(relation mergeable (T String i64 T))",
    "(relation given_meta (i64 String))",
    "(relation given_constant (i64))",
    "(relation given_interval (i64 String))",
    "(relation given_yields (i64 i64))",
    "(relation yields (T T))",
    "(relation given_holds (i64 i64))",
    "(relation holds (T T))",
    "(function now () i64 :merge (max old new))",
    "(set (now) 0)",
    "(relation inside (T String i64 i64))",
    "(relation member (T String i64))",
    "(function weight (T T String) T :merge old)",
    "(function bias (T T String) T :merge old)",
    "(ruleset insertion)",
    "(ruleset analysis)",
    "(ruleset rules)",
    "(ruleset cuts)",
    "(ruleset merges)",
    "(ruleset siblings)",
    *(f"(ruleset {step})" for step in FAMILY),
    (
        "(rule ((given_meta i m))"
        " ((set (meta (Node i)) m) (set (rank (Node i)) i) (given (Node i))) :ruleset insertion)"
    ),
    "(rule ((given_constant i)) ((constant (Node i))) :ruleset insertion)",
    "(rule ((given_varying i)) ((varying (Node i))) :ruleset insertion)",
    "(rule ((given_interval i b)) ((set (interval (Node i)) b)) :ruleset insertion)",
    "(rule ((= b (interval e))) ((finite e)) :ruleset analysis)",
    "(rule ((given_yields i j)) ((yields (Node i) (Node j))) :ruleset insertion)",
    "(rule ((given_holds i j)) ((holds (Node i) (Node j))) :ruleset insertion)",
    (
        "(rule ((pending r a b) (!= a b) (= m (meta a)) (= m (meta b))"
        ' (!= m "invalid")) ((union a b)) :ruleset analysis)'
    ),
)
