// An exported policy in onnxruntime-web: a line of JSON with its inputs by name, then one with its outputs.
//   node run.mjs policy.onnx
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import * as ort from "onnxruntime-web";

ort.env.wasm.numThreads = 1; // threads of a browser, which Node lacks
const session = await ort.InferenceSession.create(await readFile(process.argv[2]), { executionProviders: ["wasm"] });
const arrays = { float32: Float32Array, uint8: Uint8Array, bool: Uint8Array, int64: BigInt64Array };

for await (const line of createInterface({ input: process.stdin })) {
  const feeds = {};
  for (const [name, { type, dims, data }] of Object.entries(JSON.parse(line))) {
    feeds[name] = new ort.Tensor(type, arrays[type].from(data), dims);
  }
  const outputs = {};
  for (const [name, { type, dims, data }] of Object.entries(await session.run(feeds))) {
    outputs[name] = { type, dims, data: Array.from(data, Number) };
  }
  console.log(JSON.stringify(outputs));
}
