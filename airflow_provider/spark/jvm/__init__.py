"""Everything that touches Spark's JVM through py4j: describe a plan, learn its layout, run it, rebuild a relation.

It relies on Spark's internals and is tested per supported version of Spark. Whatever it does not know it calls opaque,
which means: compute it the ordinary way, never reuse it.
"""
