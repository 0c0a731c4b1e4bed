"""Policies as files that other programs run: game engines, browsers, phones.

`module` is a policy as a function of named tensors, `unity` and `godot` the same with what their loaders expect.
`graph` writes such a function as an ONNX model, `check` compares a file with its policy. Above: ``evorl.export``.
Below: learners (``evorl.rl``), whose own code gives the decisions.
"""
