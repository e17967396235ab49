"""Being an ONNX model: model folder, export, session, tokenizer, batcher.

Nothing is imported here, so that `kbmesh_onnx.folder` can be read without ONNX Runtime, and the batcher used without a
model.
"""
