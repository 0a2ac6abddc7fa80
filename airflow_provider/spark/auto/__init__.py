"""Auto mode: the shuffles of scripts that name no recovery points outlive their application.

``watching`` looks on while the script's own plans run, ``keeping`` copies what their map tasks have written, and
``restoring`` puts it back into the plans of a retry. ``mode`` enters all of it; no plan is rewritten.
"""
