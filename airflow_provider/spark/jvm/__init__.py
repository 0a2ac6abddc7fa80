"""The only place that touches Spark's JVM through py4j: describe a plan, learn its layout, run it, rebuild a relation.

Everything here leans on Spark's internals and is tested per supported Spark version. What it does not know it calls
opaque, which means: compute it the ordinary way, never reuse it.
"""
