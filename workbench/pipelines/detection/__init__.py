"""Voice activity detection: FSMN-VAD around its network, its session, and the choice of chunks to transcribe."""
