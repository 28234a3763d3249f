"use strict";
// The arithmetic that made a number, from the numbers that it was made of.
{
  const { number } = drawing;
  const { state, tokenName } = explorer;
  const LESSONS = {
    patches: "01_einops_primer.html#1.6-Flattening-patches-into-vectors",
    projection: "02_image_embedding.html#2.2-Linear-projection-of-patches",
    classToken: "02_image_embedding.html#2.5-The-class-token",
    positions: "02_image_embedding.html#2.6-Position-embeddings",
    qkv: "03_multi_head_attention.html#3.3-Queries,-keys-and-values",
    scaled: "03_multi_head_attention.html#3.4-Why-attention-scores-are-scaled",
    heads: "03_multi_head_attention.html#3.5-Several-heads",
    merging: "03_multi_head_attention.html#3.6-Splitting-and-merging-the-heads",
    gelu: "04_mlp_and_encoder.html#4.1-GELU,-a-nonlinearity-between-two-linear-layers",
    mlp: "04_mlp_and_encoder.html#4.2-The-MLP-transforms-each-token-on-its-own",
    norm: "04_mlp_and_encoder.html#4.3-Layer-normalization",
    block: "04_mlp_and_encoder.html#4.5-The-encoder-block",
    finalNorm: "04_mlp_and_encoder.html#4.7-The-encoder-and-its-final-LayerNorm",
    head: "05_vision_transformer.html#5.1-The-classification-head",
    softmax: "05_vision_transformer.html#5.4-Cross-entropy-and-the-first-loss",
  };

  const flat = (shape, index) => index.reduce((place, i, axis) => place * shape[axis] + i, 0);
  const value = (name, index) => {
    const { shape, data } = explorer.record[name];
    return data[flat(shape, index)];
  };
  const parameter = (name, ...index) => {
    const { shape, data } = explorer.model.tensors[name];
    return data[flat(shape, index)];
  };
  // "≈", because the numbers are rounded
  const times = (a, b) => `${number(a, 4)} × ${number(b, 4)} ≈ ${number(a * b, 4)}`;
  const plus = (a, b) => `${number(a)} + ${number(b)} ≈ ${number(a + b)}`;

  // a sum of products; `from` says where the first number of each comes from
  function sum(names, count, term, bias) {
    const terms = [...Array(count).keys()].map((i) => {
      const { label, from, a, b } = term(i);
      return { label, from, a, b, product: a * b };
    });
    const total = terms.reduce((all, { product }) => all + product, 0);
    terms.sort((one, other) => Math.abs(other.product) - Math.abs(one.product));
    return { names, terms, bias, total: total + (bias ?? 0), products: total };
  }

  // row `out` of a linear layer times a row of the tensor that it reads
  function linear(layer, out, input, row) {
    const width = explorer.record[input].shape.at(-1);
    const what = input === "patches" ? "value" : "feature";
    const term = (i) => ({
      label: String(i),
      from: [input, [row, i]],
      a: value(input, [row, i]),
      b: parameter(`${layer}.weight`, out, i),
    });
    return { table: sum([what, "input", "weight"], width, term, parameter(`${layer}.bias`, out)) };
  }

  function norm(layer, input, token, feature) {
    const { shape: [, width], data } = explorer.record[input];
    const { mean, std } = vit.moments(data.subarray(token * width, (token + 1) * width));
    const x = value(input, [token, feature]);
    const [weight, bias] = ["weight", "bias"].map((kind) => parameter(`${layer}.${kind}`, feature));
    return {
      lines: [
        `the token’s ${width} features: mean ${number(mean)}, standard deviation ${number(std)}`,
        `(${number(x)} − ${number(mean)}) / ${number(std)} ≈ ${number((x - mean) / std)}`,
        `${number((x - mean) / std)} × weight ${number(weight)} + bias ${number(bias)}`,
      ],
      from: [["the input", input, [token, feature]]],
    };
  }

  function added(one, other, index, name) {
    const from = [["the token before", one, index], [name, other, index]];
    return { lines: [plus(value(one, index), value(other, index))], from };
  }

  function pixel(patch, i) {
    const channel = Math.floor(i / explorer.grid().patch ** 2);
    const [mean, std] = ["mean", "std"].map((name) => explorer.model.about[name][channel]);
    const normalized = value("patches", [patch, i]);
    const brightness = number(normalized * std + mean);
    return { lines: [
      `brightness of the pixel, from 0 to 1: ${brightness}`,
      "minus the mean of the training images, divided by their standard deviation: "
        + `(${brightness} − ${number(mean)}) / ${number(std)} ≈ ${number(normalized)}`,
    ] };
  }

  function merged(at, layer, i, f) {
    const [, , e] = explorer.record[`${at}queries`].shape;
    const [head, k] = [Math.floor(f / e), f % e];
    const off = state.off.includes(`${layer}.${head}`);
    return {
      lines: [off ? `Head ${head} is switched off, so this is 0.` : `Feature ${k} of head ${head}.`],
      from: [["the head’s output", `${at}head_outputs`, [head, i, k]]],
    };
  }

  function activated(at, i, f) {
    const x = value(`${at}mlp_hidden`, [i, f]);
    const share = (1 + vit.erf(x / Math.SQRT2)) / 2;
    return {
      lines: [
        `Φ(${number(x)}) = (1 + erf(${number(x)} / √2)) / 2 ≈ ${number(share, 4)}`,
        `x · Φ(x) = ${times(x, share)}`,
      ],
      from: [["the value before GELU", `${at}mlp_hidden`, [i, f]]],
    };
  }

  // products of number i of two tensors; `one(i)` and `other(i)` are the places of the numbers
  function products(names, count, [first, one], [second, other], label = String) {
    return sum(names, count, (i) => ({
      label: label(i), from: [first, one(i)], a: value(first, one(i)), b: value(second, other(i)),
    }));
  }

  const dotProduct = (at, head, i, j) => products(
    ["feature", "query", "key"], explorer.record[`${at}queries`].shape[2],
    [`${at}queries`, (k) => [head, i, k]], [`${at}keys`, (k) => [head, j, k]],
  );

  const weightedMean = (at, head, i, k) => products(
    ["token", "weight", "value"], explorer.record[`${at}weights`].shape[2],
    [`${at}weights`, (j) => [head, i, j]], [`${at}values`, (j) => [head, j, k]],
    (j) => (j ? `patch ${j - 1}` : "class token"),
  );

  // exp(x) / sum of all exp, with the largest taken away first, as the engine does it
  function softmaxLines(row, at, what) {
    const largest = Math.max(...row);
    const sum = row.reduce((all, x) => all + Math.exp(x - largest), 0);
    const part = Math.exp(row[at] - largest);
    return [
      `exp(${number(row[at])} − largest ${number(largest)}) ≈ ${number(part, 4)}`,
      `sum of these for all ${row.length} ${what}: ${number(sum, 4)}`,
      `${number(part, 4)} / ${number(sum, 4)} ≈ ${number(part / sum, 4)}`,
    ];
  }

  function weights(at, head, i, j) {
    const { shape: [, s, e] } = explorer.record[`${at}queries`];
    const score = (token) => value(`${at}scores`, [head, i, token]) / Math.sqrt(e);
    const leftOut = (token) => state.without.includes(token - 1);
    const row = [...Array(s).keys()].map((token) => (leftOut(token) ? -Infinity : score(token)));
    const weight = value(`${at}weights`, [head, i, j]);
    const size = (k) => Math.abs(value(`${at}values`, [head, j, k]));
    const feature = [...Array(e).keys()].reduce((best, k) => (size(k) > size(best) ? k : best));
    return {
      lines: [
        `score q · k = ${number(value(`${at}scores`, [head, i, j]))}`,
        `divided by √${e}: ${number(score(j))}`,
        ...(leftOut(j) ? ["This patch is left out: weight 0."] : softmaxLines(row, j, "key tokens")),
        `The head adds this weight times the value of ${tokenName(j)} to its output. `
          + `Feature ${feature}: ${times(weight, value(`${at}values`, [head, j, feature]))}`,
      ],
      from: [
        ["the score", `${at}scores`, [head, i, j]],
        ["that output", `${at}head_outputs`, [head, i, feature]],
      ],
      table: dotProduct(at, head, i, j),
    };
  }

  // Each kind of tensor: its title, its operation in words, its lesson, its line of code, and its
  // arithmetic. In a layer,
  // `at` is "layers.2.", `block` is "encoder.layers.2", and `into` is what enters the block.
  const NORMALIZE = "LayerNorm gives the features of a token mean 0 and standard deviation 1, "
    + "then scales and shifts each feature.";
  const ATTEND = "x = x + self.dropout(self.self_attention(self.ln_1(x)))";
  const TRANSFORM = "return x + self.mlp(self.ln_2(x))";
  const HIDDEN = "x = self.dropout(F.gelu(self.linear_1(x)))";
  const MERGE = 'return self.out_proj(rearrange(out, "b heads s e -> b s (heads e)"))';
  const SPLIT = "query, key, value = (rearrange(third, pattern, heads=self.num_heads) for third in thirds)";
  const vector = (third, part, title) => [
    title, `A linear layer computes the ${title.toLowerCase()} from the normalized token.`,
    "qkv", SPLIT,
    ({ at, block }, head, i, k) => {
      const { shape: [heads, , e] } = explorer.record[at + part];
      return linear(`${block}.self_attention.qkv`, (third * heads + head) * e + k, `${at}ln_1`, i);
    },
  ];
  const OF_LAYER = {
    ln_1: ["LayerNorm before attention", NORMALIZE, "norm", ATTEND,
      ({ block, into }, i, f) => norm(`${block}.ln_1`, into, i, f)],
    queries: vector(0, "queries", "Query"),
    keys: vector(1, "keys", "Key"),
    values: vector(2, "values", "Value"),
    scores: ["Score",
      "A score is the dot product of a query and a key.",
      "qkv",
      'scores = einsum(query, key, "b heads i e, b heads j e -> b heads i j")',
      ({ at }, head, i, j) => ({ table: dotProduct(at, head, i, j) })],
    weights: ["Attention weight",
      "The softmax turns the scaled scores of a query into attention weights. The largest score is "
        + "subtracted first, which changes no weight but keeps the exponentials small.",
      "scaled",
      "return (scores * query.shape[-1] ** -0.5).softmax(dim=-1)",
      ({ at }, head, i, j) => weights(at, head, i, j)],
    head_outputs: ["Output of a head",
      "A head’s output is the sum of all values, each times its attention weight.",
      "heads",
      'return einsum(weights, value, "b heads i j, b heads j v -> b heads i v")',
      ({ at }, head, i, k) => ({ table: weightedMean(at, head, i, k) })],
    merged: ["Merged heads",
      "The outputs of all heads are joined to one vector per token.",
      "merging", MERGE, ({ at, layer }, i, f) => merged(at, layer, i, f)],
    attention_output: ["Attention output",
      "The output projection, a linear layer, mixes the features of all heads.",
      "merging", MERGE,
      ({ at, block }, i, f) => linear(`${block}.self_attention.out_proj`, f, `${at}merged`, i)],
    after_attention: ["Residual stream after attention",
      "The residual connection adds the attention output to the token.",
      "block", ATTEND,
      ({ at, into }, i, f) => added(into, `${at}attention_output`, [i, f], "the attention output")],
    ln_2: ["LayerNorm before the MLP", NORMALIZE, "norm", TRANSFORM,
      ({ at, block }, i, f) => norm(`${block}.ln_2`, `${at}after_attention`, i, f)],
    mlp_hidden: ["MLP, before GELU",
      "The first linear layer of the MLP computes the hidden features of a token.",
      "mlp", HIDDEN,
      ({ at, block }, i, f) => linear(`${block}.mlp.linear_1`, f, `${at}ln_2`, i)],
    mlp_activated: ["MLP, after GELU",
      "The activation function GELU multiplies x by Φ(x), which is between 0 and 1.",
      "gelu", HIDDEN, ({ at }, i, f) => activated(at, i, f)],
    mlp_output: ["MLP output",
      "The second linear layer of the MLP computes its output from the hidden features.",
      "mlp", "return self.dropout(self.linear_2(x))",
      ({ at, block }, i, f) => linear(`${block}.mlp.linear_2`, f, `${at}mlp_activated`, i)],
    output: ["Residual stream after the block",
      "The residual connection adds the MLP output to the token.",
      "block", TRANSFORM,
      ({ at }, i, f) => added(`${at}after_attention`, `${at}mlp_output`, [i, f], "the MLP output")],
  };

  const learned = (words) => ({ lines: [words] });
  const PLACED = "return self.dropout(tokens + self.pos_embedding)";
  const READ = "return self.head(tokens[:, 0])";
  const JOINED = "The class token comes before the tokens of the patches.";
  const JOIN = "tokens = torch.cat([class_token, patch_tokens], dim=1)";
  const CLASS_TOKEN = "The class token is learned. At this point it is the same for every image.";
  const OF_MODEL = {
    patches: ["Pixel of a patch",
      "The brightness of a pixel is normalized, with statistics of all training images.",
      "patches",
      "images = (self.images - self.mean[:, None, None]) / self.std[:, None, None]",
      (_, patch, i) => pixel(patch, i)],
    tokens: ["Token",
      "The linear projection computes each feature of a token from all values of its patch.",
      "projection", "return self.projection(patchify(images, self.patch_size))",
      (_, i, f) => (i ? linear("embedding.patch_embedding.projection", f, "patches", i - 1)
        : { ...learned(CLASS_TOKEN), operation: JOINED, code: JOIN })],
    positions: ["Position embedding",
      "Each position has a learned vector, the position embedding.",
      "positions", PLACED,
      () => learned(state.positions ? "A learned number, the same for every image."
        : "The position embeddings are switched off, so this is 0.")],
    embedding: ["Token with its position",
      "The position embedding is added to the token.",
      "positions", PLACED,
      (_, i, f) => added("tokens", "positions", [i, f], "the position embedding")],
    ln: ["Final LayerNorm", NORMALIZE, "finalNorm", "return self.ln(x)", (_, i, f) => {
      return norm("encoder.ln", `layers.${explorer.model.sizes.num_layers - 1}.output`, i, f);
    }],
    pooled: ["What the classification head reads",
      "The classification head reads one vector for the whole image.",
      "head", READ,
      (_, __, f) => (explorer.model.sizes.pool === "token"
        ? { lines: [`Feature ${f} of the class token.`], from: [["the class token", "ln", [0, f]]] }
        : learned(`The mean of feature ${f} over the patch tokens.`))],
    logits: ["Logit",
      "The classification head, a linear layer, computes one logit per class.",
      "head", READ, (_, __, k) => linear("head", k, "pooled", 0)],
    probabilities: ["Probability",
      "The softmax turns the logits into probabilities that add up to 1.",
      "softmax", "probabilities = example.softmax(dim=-1)",
      (_, __, k) => ({
        lines: softmaxLines([...explorer.record.logits.data], k, "classes"),
        from: [["the logit", "logits", [0, k]]],
      })],
  };

  // "layers.0.weights:1.25.31" -> what it is, its value and its arithmetic; null for no such number
  function explain(cell) {
    const [name, where = ""] = (cell ?? "").split(":");
    const index = where.split(".").map(Number);
    const shape = explorer.record[name]?.shape;
    const fits = (i, axis) => Number.isInteger(i) && i >= 0 && i < shape[axis];
    const exists = shape?.length === index.length && index.every(fits);
    if (!exists) return null;
    const layer = name.startsWith("layers.") ? Number(name.split(".")[1]) : null;
    const part = name.split(".").at(-1);
    const [title, operation, lesson, code, how] = (layer === null ? OF_MODEL : OF_LAYER)[part] ?? [];
    if (!how) return null;
    const at = `layers.${layer}.`;
    const isClassToken = part === "tokens" && index[0] === 0;
    const into = layer ? `layers.${layer - 1}.output` : "embedding";
    return {
      name, index, title, operation, code,
      value: value(name, index),
      digits: ["weights", "probabilities"].includes(part) ? 4 : 3,
      place: placeOf(part, layer, index),
      lesson: `notebooks/${LESSONS[isClassToken ? "classToken" : lesson]}`,
      ...how({ at, into, layer, block: `encoder.layers.${layer}` }, ...index),
    };
  }

  function placeOf(part, layer, index) {
    const words = [];
    if (layer !== null) words.push(`layer ${layer}`);
    if (index.length === 3) words.push(`head ${index[0]}`);
    const [row, column] = index.slice(-2);
    const pair = ["scores", "weights"].includes(part);
    const byClass = ["logits", "probabilities"].includes(part);
    if (byClass) return `class ${explorer.model.about.class_names[column]}`;
    if (part === "patches") return `patch ${row}, value ${column}`;
    if (pair) words.push(explorer.pairName(part, row, column));
    else words.push(...(part === "pooled" ? [] : [tokenName(row)]), `feature ${column}`);
    return words.join(", ");
  }

  Object.assign(explorer, { LESSONS, value, explain });
}
