"""The lists by which plans are identified: what is known, what is left out and why, what is seen through.

Whatever is on none of these lists counts. A class outside the known packages has no identity.
"""

from __future__ import annotations

KNOWN_PACKAGES = (
    "java.lang.",
    "java.math.",
    "java.time.",
    "java.util.",
    "scala.",
    "org.apache.spark.api.python.",
    "org.apache.spark.ml.linalg.",
    "org.apache.spark.sql.catalyst.",
    "org.apache.spark.sql.connector.catalog.CatalogV2Implicits",
    "org.apache.spark.sql.connector.expressions.",
    "org.apache.spark.sql.execution.",
    "org.apache.spark.sql.internal.",
    "org.apache.spark.sql.sources.",
    "org.apache.spark.sql.types.",
    "org.apache.spark.sql.util.",
    "org.apache.spark.unsafe.types.",
    "org.apache.spark.util.collection.BitSet",
)
"""Packages whose values are fully described by their fields: Spark's version is part of every identity."""

UNKNOWN_PACKAGES = (
    "org.apache.spark.sql.execution.streaming.",
    "org.apache.spark.sql.execution.command.",
    "java.lang.invoke.",
    "java.lang.reflect.",
)
"""Exceptions to the packages above: streams keep state of their own, commands do things, the rest is code."""

OPAQUE: dict[str, str] = {
    "ScalaUDF": "a JVM function",
    "ScalaAggregator": "a JVM function",
    "ScalaUDAF": "a JVM function",
    "TypedAggregateExpression": "a JVM function",
    "SimpleTypedAggregateExpression": "a JVM function",
    "ComplexTypedAggregateExpression": "a JVM function",
    "HiveSimpleUDF": "a Hive function",
    "HiveGenericUDF": "a Hive function",
    "HiveGenericUDTF": "a Hive function",
    "HiveUDAFFunction": "a Hive function",
    "TypedFilter": "a typed JVM function",
    "MapElements": "a typed JVM function",
    "MapPartitions": "a typed JVM function",
    "MapGroups": "a typed JVM function",
    "FlatMapGroupsWithState": "a typed JVM function",
    "CoGroup": "a typed JVM function",
    "AppendColumns": "a typed JVM function",
    "ApplyFunctionExpression": "a data source's function",
    "V2Aggregator": "a data source's function",
    "CallMethodViaReflection": "a Java method",
    "TryReflect": "a Java method",
    "ScriptTransformation": "a script",
    "CollectMetrics": "an observation, whose metrics somebody waits for,",
    "FlatMapGroupsInPandasWithState": "a function with state",
    "TransformWithStateInPySpark": "a function with state",
    "TransformWithStateInPandas": "a function with state",
}
"""Short class names of nodes that a plan shows by name only → what they are. Physical nodes have the suffix ``Exec``.
"""

LEFT_OUT_CLASSES: dict[str, str] = {
    "org.apache.spark.sql.catalyst.trees.TreeNode": "origin, tags and caches: where in the script a node was made",
    "org.apache.spark.util.BestEffortLazyVal": "a cache",
    "org.apache.spark.util.TransientBestEffortLazyVal": "a cache",
    "org.apache.spark.util.TransientLazy": "a cache",
}
"""JVM classes none of whose own fields count → why."""

LEFT_OUT_FIELDS: dict[str, str] = {
    "queryContext": "where in the script an expression was made, for error messages",
    "nodePatterns": "follows from the class",
    "resolved": "a cache",
    "initialized": "whether an expression that keeps something has run",
    "accumulator": "how a Python function's accumulators come back; a function that uses one has no identity",
    "resultId": "the number that Spark gives a Python function or an aggregate",
    "pythonExec": "the path of Python: its version counts",
    "envVars": "the environment of Python workers",
    "pythonIncludes": "archives that were shipped: the modules that a function reaches count",
}
"""Fields of serialized values that never count → why. Numbers of expressions are not here: they are renumbered."""

LEFT_OUT_OF: dict[str, dict[str, str]] = {
    "NamedLambdaVariable": {
        "value": "the slot that holds a row's value while the lambda runs",
        "name": "PySpark counts it up; its id counts",
    },
    "SQLFunction": {"createTimeMs": "when the function was made: what it does counts"},
    "PythonUDF": {"name": "how the function is called: what it does counts"},
    "PythonUDAF": {"name": "how the function is called: what it does counts"},
    "PythonUDTF": {"name": "how the function is called: what it does counts"},
    "MultiCommutativeOp": {"originalRoot": "the same operands before they were put in order"},
    "InSubqueryExec": {
        "resultBroadcast": "the result, once it is there",
        "result": "the result, once it is there",
    },
}
"""Short class name → fields of its own that do not count → why."""

LEFT_OUT_KEYS: dict[str, str] = {
    "__dataset_id": "in the metadata of a column that the script has asked a frame for, the number of the frame",
}
"""Keys of maps whose values do not count → why."""

LEFT_OUT_OF_NODES: dict[str, dict[str, str]] = {
    "LogicalRDD": {
        "session": "the session",
        "originStats": "estimates",
        "originConstraints": "what the optimizer concluded",
        "fromCheckpoint": "how its rows are handed on: which ones they are counts",
    },
    "LogicalRelation": {"catalogTable": "the catalog's entry: the files, the format and the columns count"},
    "HiveTableRelation": {"tableStats": "estimates", "prunedPartitions": "what the optimizer concluded"},
    "FileSourceScanExec": {"tableIdentifier": "the table's name: its files count"},
    "DataSourceV2Relation": {
        "catalog": "the catalog: the table and its version count",
        "identifier": "the catalog's name for it",
        "options": "counted with the table",
    },
    "BatchScanExec": {
        "table": "counted with the scan",
        "output": "the scan's columns; in canonical plans, too, its ids are those of one query",
    },
    "View": {
        "desc": "the catalog's entry: what the view reads counts",
        "options": "counted with the relations that they reach",
    },
    "Range": {"numSlices": "how rows are spread over tasks"},
    "SubqueryExec": {"name": "holds a number of Spark's"},
    "SubqueryBroadcastExec": {"name": "holds a number of Spark's"},
    "SubqueryAdaptiveBroadcastExec": {"name": "holds a number of Spark's"},
    "WholeStageCodegenExec": {"codegenStageId": "numbers generated code"},
}
"""Short class name of a plan's node → parameters that do not count → why."""

SEEN_THROUGH: dict[str, str] = {
    "WholeStageCodegenExec": "child",
    "InputAdapter": "child",
    "ColumnarToRowExec": "child",
    "RowToColumnarExec": "child",
    "AQEShuffleReadExec": "child",
    "ReusedSubqueryExec": "child",
    "ShuffleQueryStageExec": "plan",
    "BroadcastQueryStageExec": "plan",
    "TableCacheQueryStageExec": "plan",
    "ResultQueryStageExec": "plan",
    "AdaptiveSparkPlanExec": "initialPlan",
    "LogicalQueryStage": "logicalPlan",
}
"""Nodes that change how rows are computed or read, not which: only what is below counts, under this name."""

PLAN_TYPES = (".SparkPlan", ".LogicalPlan", ".QueryPlan", ".BaseSubqueryExec", ".Exchange", ".logical.Range")
"""Suffixes of the declared types of fields that hold a plan."""

PLAN_SEQUENCES = {("Union", "children"), ("UnionExec", "children"), ("WithCTE", "cteDefs")}
"""Parameters that hold several plans."""

NUMBERED = {
    ("CTERelationDef", "id"),
    ("CTERelationRef", "cteId"),
    ("UnionLoop", "id"),
    ("UnionLoopRef", "loopId"),
}
"""Parameters that hold a number which Spark counts up: the order of appearance replaces it."""

COMMUTATIVE = {
    "Add": ("left", "right"),
    "And": ("left", "right"),
    "BitwiseAnd": ("left", "right"),
    "BitwiseOr": ("left", "right"),
    "BitwiseXor": ("left", "right"),
    "EqualNullSafe": ("left", "right"),
    "EqualTo": ("left", "right"),
    "Multiply": ("left", "right"),
    "Or": ("left", "right"),
    "MultiCommutativeOp": ("operands",),
}
"""Expressions whose operands a canonical plan sorts by hash codes, which differ in each JVM → their fields."""

MIRRORED = {"GreaterThan": "LessThan", "GreaterThanOrEqual": "LessThanOrEqual"}
"""Comparisons that a canonical plan mirrors by hash codes."""
