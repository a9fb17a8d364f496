"""The runtimes: one way of computing each, one folder each. `workbench.core.runtimes` lists them."""
