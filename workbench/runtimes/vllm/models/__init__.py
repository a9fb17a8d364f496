"""The networks that vLLM loads for the speech families: an audio tower before one of vLLM's own language models.

`audio` turns audio into a request's features in the front end's process, `speech` has the networks' common code in the
worker, and each family's tower has a module. vLLM finds them through `workbench.runtimes.vllm.plugin`.
"""
