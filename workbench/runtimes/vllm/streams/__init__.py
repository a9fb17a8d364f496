"""Adds parallel codec streams to vLLM, whose requests have one stream.

`stream_request` defines what a request sends into the engine, `answers` keeps track of the requests there, and `heads`
computes the logits. Two modules connect them with vLLM's model runners: `worker` with V1, which vLLM uses on a CPU, and
`model_state` with V2, which vLLM uses on a GPU. `network` is the session's side.
"""
