"""SenseVoice and Paraformer: recognisers with SAN-M's encoder, and Paraformer's decoder and hotwords."""
