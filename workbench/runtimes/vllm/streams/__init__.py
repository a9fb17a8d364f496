"""Answers of parallel codec streams inside vLLM, which knows requests of one stream.

`asked` is what a request carries, `answers` follows the requests in the engine without vLLM, `heads` computes the
logits. Two modules connect them with vLLM's model runners: `worker` with the one that is current on a processor, and
`model_state` with the one that is current on a GPU.
"""
