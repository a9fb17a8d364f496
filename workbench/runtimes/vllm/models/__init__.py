"""The networks that vLLM loads for the speech families: a tower that hears, before a language model of vLLM's own.

`audio` turns sound into a request's features in the front end's process, `speech` is what the networks share in the
worker, a module per family has its tower. vLLM finds them through `workbench.runtimes.vllm.plugin`.
"""
