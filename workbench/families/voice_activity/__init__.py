"""FSMN-VAD, which finds the speech in a recording: FunASR's directory and its ONNX file."""
