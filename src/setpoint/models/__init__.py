"""From config.json, safetensors and GGUF headers to a model spec."""
