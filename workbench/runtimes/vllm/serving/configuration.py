"""The facts about a SpeechLM that vLLM needs before it starts an engine. vLLM finds the class by the architecture.

So neither a session nor `vllm serve DIRECTORY` needs arguments for it. Every process with this plugin imports this
file, so it imports little.
"""

from __future__ import annotations

from typing import Any

from vllm.logger import init_logger
from vllm.model_executor.models.config import VerifyAndUpdateConfig

from workbench.families.speechlm.directory import config_file, read_layout
from workbench.formats.json_files import read_json_file
from workbench.runtimes.vllm.streams.stream_request import width

logger = init_logger("vllm.speech_workbench")

WORKER = "workbench.runtimes.vllm.streams.worker.SpeechWorker"
SCHEDULER = "workbench.runtimes.vllm.streams.scheduler.PairScheduler"
AUTOMATIC = "auto"  # vLLM's name for the platform's own worker


class SpeechLmConfiguration(VerifyAndUpdateConfig):
    """Sets the worker that knows codec streams, the scheduler that knows guidance, and room for the streams that come
    back with each token.
    """

    @staticmethod
    def verify_and_update_config(vllm_config: Any) -> None:
        """Changes the configuration of an engine, in the process of its front end."""
        from workbench.runtimes.vllm.models.directory import directory_of
        from workbench.runtimes.vllm.serving.chat_route import teach_conversations

        model, parallel = vllm_config.model_config, vllm_config.parallel_config
        if parallel.worker_cls == AUTOMATIC:
            parallel.worker_cls = WORKER
        elif parallel.worker_cls != WORKER:
            logger.warning(
                "The worker class is %s, which does not compute codec streams on model runner V1; leave it out.",
                parallel.worker_cls,
            )
        scheduling = vllm_config.scheduler_config
        if scheduling.scheduler_cls is None:
            scheduling.scheduler_cls = SCHEDULER
            # This scheduler must know what a step has chosen before it plans the next one.
            scheduling.async_scheduling = False
        directory = directory_of(model)
        file = config_file(directory)
        columns = width(read_layout(read_json_file(file), f"{directory.name}/{file.name}"), evidence=True)
        if 0 <= model.max_logprobs < columns:
            model.max_logprobs = columns
        teach_conversations()
