"use strict";
// The trained model's forward pass, without a library. All scripts of this folder add their
// functions to one object, `vit`: a page from the disk can load scripts, but no modules.
// A tensor is {shape, data}: the numbers are float32, in the order in which PyTorch keeps them.
globalThis.vit = {};
{
  function tensor(shape, data) {
    return { shape, data: data ?? new Float32Array(shape.reduce((a, b) => a * b, 1)) };
  }

  // the sum of the products of `count` numbers of a and of b, from these places on
  function dot(a, fromA, b, fromB, count) {
    let sum = 0;
    for (let i = 0; i < count; i++) sum += a[fromA + i] * b[fromB + i];
    return sum;
  }

  const parameters = ({ tensors }, name) => [tensors[`${name}.weight`], tensors[`${name}.bias`]];

  // Lesson 2.2: x (s, in), the layer's weight (out, in) and bias (out) -> (s, out)
  function linear(model, name, x) {
    const [weight, bias] = parameters(model, name);
    const [rows, inputs] = x.shape;
    const outputs = weight.shape[0];
    const y = tensor([rows, outputs]);
    for (let row = 0; row < rows; row++) {
      for (let out = 0; out < outputs; out++) {
        const sum = dot(x.data, row * inputs, weight.data, out * inputs, inputs);
        y.data[row * outputs + out] = sum + bias.data[out];
      }
    }
    return y;
  }

  // Lesson 4.3: each token less its mean, divided by the standard deviation, times weight plus bias
  function layerNorm(model, name, x) {
    const [weight, bias] = parameters(model, name);
    const [rows, width] = x.shape;
    const y = tensor(x.shape);
    for (let row = 0; row < rows; row++) {
      const token = x.data.subarray(row * width, (row + 1) * width);
      const { mean, std } = vit.moments(token);
      token.forEach((value, i) => {
        y.data[row * width + i] = ((value - mean) / std) * weight.data[i] + bias.data[i];
      });
    }
    return y;
  }

  function moments(token, eps = 1e-6) {
    const mean = token.reduce((sum, value) => sum + value, 0) / token.length;
    const variance = token.reduce((sum, value) => sum + (value - mean) ** 2, 0) / token.length;
    return { mean, std: Math.sqrt(variance + eps) };
  }

  // Lesson 3.2: over the last axis, less its largest value, so that no exponential overflows; an
  // entry that is left out counts as minus infinity
  function softmax(x, scale = 1, leftOut = new Set()) {
    const width = x.shape.at(-1);
    const y = tensor(x.shape);
    for (let start = 0; start < x.data.length; start += width) {
      let largest = -Infinity;
      for (let i = 0; i < width; i++) {
        const score = leftOut.has(i) ? -Infinity : x.data[start + i] * scale;
        y.data[start + i] = score;
        largest = Math.max(largest, score);
      }
      let sum = 0;
      for (let i = start; i < start + width; i++) sum += y.data[i] = Math.exp(y.data[i] - largest);
      for (let i = start; i < start + width; i++) y.data[i] /= sum;
    }
    return y;
  }

  // 2/√π · exp(-x²) · (x + 2x³/3 + 4x⁵/(3·5) + …): all terms have one sign, so nothing cancels
  function erf(x) {
    if (Math.abs(x) > 6) return Math.sign(x);
    let term = x;
    let sum = x;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (2 * x * x) / (2 * n + 1);
      sum += term;
    }
    return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
  }

  // Lesson 4.1: the exact GELU, not its approximation with tanh
  const gelu = (value) => (value * (1 + erf(value / Math.SQRT2))) / 2;

  const add = (x, y) => tensor(x.shape, x.data.map((value, i) => value + y.data[i]));

  Object.assign(vit, { tensor, dot, linear, layerNorm, moments, softmax, erf, gelu, add });
}
