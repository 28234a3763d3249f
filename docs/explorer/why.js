"use strict";
// The arithmetic that made a number, from the numbers that it was made of.
{
  const { element, number, state, tokenName } = explorer;
  const LESSONS = {
    patches: "01_einops_primer.html#1.6-Flattening-patches-into-vectors",
    projection: "02_image_embedding.html#2.2-Linear-projection-of-patches",
    classToken: "02_image_embedding.html#2.5-The-class-token",
    positions: "02_image_embedding.html#2.6-Position-embeddings",
    qkv: "03_multi_head_attention.html#3.3-Queries,-keys-and-values",
    scaled: "03_multi_head_attention.html#3.4-Why-the-scores-are-divided-by-√e",
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
  const value = (name, index) => explorer.record[name].data[flat(explorer.record[name].shape, index)];
  const parameter = (name, ...index) => {
    const { shape, data } = explorer.model.tensors[name];
    return data[flat(shape, index)];
  };
  const times = (a, b) => `${number(a)} × ${number(b)} = ${number(a * b)}`;
  const plus = (a, b) => `${number(a)} + ${number(b)} = ${number(a + b)}`;

  // a sum of products of two lists; `from` says where a number of the first list comes from
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
    const [x, weight, bias] = [
      value(input, [token, feature]), parameter(`${layer}.weight`, feature), parameter(`${layer}.bias`, feature),
    ];
    return {
      lines: [
        `mean of the token’s ${width} features: ${number(mean)}; standard deviation: ${number(std)}`,
        `(${number(x)} − ${number(mean)}) / ${number(std)} = ${number((x - mean) / std)}`,
        `${number((x - mean) / std)} × weight ${number(weight)} + bias ${number(bias)}`,
      ],
      from: [["the input", input, [token, feature]]],
    };
  }

  function added(one, other, index, names) {
    const from = [[names[0], one, index], [names[1], other, index]];
    return { lines: [plus(value(one, index), value(other, index))], from };
  }

  const query = ["query", "key"];
  const dotProduct = (at, head, i, j) => sum(["feature", ...query], explorer.record[`${at}queries`].shape[2], (k) => ({
    label: String(k),
    from: [`${at}queries`, [head, i, k]],
    a: value(`${at}queries`, [head, i, k]),
    b: value(`${at}keys`, [head, j, k]),
  }));

  // exp(x) / sum of all exp, with the largest taken away first, as the engine does it
  function softmaxLines(row, at, what) {
    const largest = Math.max(...row);
    const sum = row.reduce((all, x) => all + Math.exp(x - largest), 0);
    const part = Math.exp(row[at] - largest);
    return [
      `exp(${number(row[at])} − largest ${number(largest)}) = ${number(part, 4)}`,
      `sum of these for all ${row.length} ${what}: ${number(sum, 4)}`,
      `${number(part, 4)} / ${number(sum, 4)} = ${number(part / sum, 4)}`,
    ];
  }

  function weights(at, head, i, j) {
    const { shape: [, s, e] } = explorer.record[`${at}queries`];
    const score = (token) => value(`${at}scores`, [head, i, token]) / Math.sqrt(e);
    const row = [...Array(s).keys()].map((token) => (state.without.includes(token - 1) ? -Infinity : score(token)));
    const weight = value(`${at}weights`, [head, i, j]);
    const feature = [...Array(e).keys()].reduce((best, k) => {
      const size = (f) => Math.abs(value(`${at}values`, [head, j, f]));
      return size(k) > size(best) ? k : best;
    });
    return {
      lines: [
        `score q · k = ${number(value(`${at}scores`, [head, i, j]))}`,
        `divided by √${e}: ${number(score(j))}`,
        ...(Number.isFinite(row[j]) ? softmaxLines(row, j, "key tokens") : ["This patch is left out: weight 0."]),
        `The head adds this weight times the value of ${tokenName(j)} to its output. Feature ${feature}: `
          + times(weight, value(`${at}values`, [head, j, feature])),
      ],
      from: [["the score", `${at}scores`, [head, i, j]], ["that output", `${at}head_outputs`, [head, i, feature]]],
      table: dotProduct(at, head, i, j),
    };
  }

  // the parts of one layer; `at` is "layers.2.", `block` is "encoder.layers.2"
  const OF_LAYER = {
    ln_1: ["LayerNorm before attention", "norm", "x = x + self.dropout(self.self_attention(self.ln_1(x)))",
      ({ block, into }, i, f) => norm(`${block}.ln_1`, into, i, f)],
    ...Object.fromEntries([["queries", "Query"], ["keys", "Key"], ["values", "Value"]].map(([part, title], third) => [part, [
      title, "qkv", "query, key, value = rearrange(self.qkv(x), pattern, three=3, heads=self.num_heads)",
      ({ at, block }, head, i, k) => {
        const { shape: [heads, , e] } = explorer.record[at + part];
        return linear(`${block}.self_attention.qkv`, (third * heads + head) * e + k, `${at}ln_1`, i);
      }]])),
    scores: ["Score", "qkv", "scores = einsum(query, key, \"b heads i e, b heads j e -> b heads i j\")",
      ({ at }, head, i, j) => ({ table: dotProduct(at, head, i, j) })],
    weights: ["Attention weight", "scaled", "return (scores * query.shape[-1] ** -0.5).softmax(dim=-1)",
      ({ at }, head, i, j) => weights(at, head, i, j)],
    head_outputs: ["Output of a head", "heads", "return einsum(weights, value, \"b heads i j, b heads j v -> b heads i v\")",
      ({ at }, head, i, k) => ({
        table: sum(["token", "weight", "value"], explorer.record[`${at}weights`].shape[2], (j) => ({
          label: j ? `patch ${j - 1}` : "class token",
          from: [`${at}weights`, [head, i, j]],
          a: value(`${at}weights`, [head, i, j]),
          b: value(`${at}values`, [head, j, k]),
        })),
      })],
    merged: ["Merged heads", "merging", "return self.out_proj(rearrange(out, \"b heads s e -> b s (heads e)\"))",
      ({ at, layer }, i, f) => {
        const e = explorer.record[`${at}queries`].shape[2];
        const [head, k] = [Math.floor(f / e), f % e];
        const off = state.off.includes(`${layer}.${head}`);
        const words = off ? `Head ${head} is switched off, so its features are 0.` : `This is feature ${k} of head ${head}.`;
        return { lines: [words], from: [["the head’s output", `${at}head_outputs`, [head, i, k]]] };
      }],
    attention_output: ["Attention output", "merging", "return self.out_proj(rearrange(out, \"b heads s e -> b s (heads e)\"))",
      ({ at, block }, i, f) => linear(`${block}.self_attention.out_proj`, f, `${at}merged`, i)],
    after_attention: ["Residual stream after attention", "block", "x = x + self.dropout(self.self_attention(self.ln_1(x)))",
      ({ at, into }, i, f) => added(into, `${at}attention_output`, [i, f], ["the token before", "the attention output"])],
    ln_2: ["LayerNorm before the MLP", "norm", "return x + self.mlp(self.ln_2(x))",
      ({ at, block }, i, f) => norm(`${block}.ln_2`, `${at}after_attention`, i, f)],
    mlp_hidden: ["MLP, before GELU", "mlp", "x = self.dropout(F.gelu(self.linear_1(x)))",
      ({ at, block }, i, f) => linear(`${block}.mlp.linear_1`, f, `${at}ln_2`, i)],
    mlp_activated: ["MLP, after GELU", "gelu", "x = self.dropout(F.gelu(self.linear_1(x)))",
      ({ at }, i, f) => {
        const x = value(`${at}mlp_hidden`, [i, f]);
        const share = (1 + vit.erf(x / Math.SQRT2)) / 2;
        const lines = [`Φ(${number(x)}) = (1 + erf(${number(x)} / √2)) / 2 = ${number(share, 4)}`, `x · Φ(x) = ${times(x, share)}`];
        return { lines, from: [["the value before GELU", `${at}mlp_hidden`, [i, f]]] };
      }],
    mlp_output: ["MLP output", "mlp", "return self.dropout(self.linear_2(x))",
      ({ at, block }, i, f) => linear(`${block}.mlp.linear_2`, f, `${at}mlp_activated`, i)],
    output: ["Residual stream after the block", "block", "return x + self.mlp(self.ln_2(x))",
      ({ at }, i, f) => added(`${at}after_attention`, `${at}mlp_output`, [i, f], ["the token before", "the MLP output"])],
  };

  const learned = (words) => ({ lines: [words] });
  const PROJECTION = "embedding.patch_embedding.projection";
  const OF_MODEL = {
    patches: ["Pixel of a patch", "patches", "return rearrange(images, \"b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)\", p1=patch_size, p2=patch_size)",
      (_, patch, i) => {
        const { mean, std } = explorer.model.about;
        const channel = Math.floor(i / explorer.grid().patch ** 2);
        const brightness = value("patches", [patch, i]) * std[channel] + mean[channel];
        return { lines: [
          `brightness of the pixel, from 0 to 1: ${number(brightness)}`,
          `minus the mean of the training images, divided by their standard deviation:`,
          `(${number(brightness)} − ${number(mean[channel])}) / ${number(std[channel])} = ${number(value("patches", [patch, i]))}`,
        ] };
      }],
    tokens: ["Token", "projection", "tokens = torch.cat([class_token, patch_tokens], dim=1)",
      (_, i, f) => (i ? linear(PROJECTION, f, "patches", i - 1)
        : learned("The class token is learned. It is the same for every image, and has seen no pixel yet."))],
    positions: ["Position embedding", "positions", "return self.dropout(tokens + self.pos_embedding)",
      () => learned(state.positions ? "A learned number, the same for every image." : "The positions are switched off, so this is 0.")],
    embedding: ["Token with its position", "positions", "return self.dropout(tokens + self.pos_embedding)",
      (_, i, f) => added("tokens", "positions", [i, f], ["the token", "the position embedding"])],
    ln: ["Final LayerNorm", "finalNorm", "return self.ln(x)",
      (_, i, f) => norm("encoder.ln", `layers.${explorer.model.sizes.num_layers - 1}.output`, i, f)],
    pooled: ["What the classification head reads", "head", "return self.head(tokens[:, 0])",
      (_, __, f) => (explorer.model.sizes.pool === "token"
        ? { lines: [`This is feature ${f} of the class token.`], from: [["the class token", "ln", [0, f]]] }
        : learned(`This is the mean of feature ${f} over the patch tokens.`))],
    logits: ["Logit", "head", "return self.head(tokens[:, 0])", (_, __, k) => linear("head", k, "pooled", 0)],
    probabilities: ["Probability", "softmax", "probabilities = example.softmax(dim=-1)",
      (_, __, k) => ({
        lines: softmaxLines([...explorer.record.logits.data], k, "classes"),
        from: [["the logit", "logits", [0, k]]],
      })],
  };

  // "layers.0.weights:1.25.31" -> what it is, its value and its arithmetic; null for a number that does not exist
  function explain(cell) {
    const [name, where = ""] = (cell ?? "").split(":");
    const index = where.split(".").map(Number);
    const shape = explorer.record[name]?.shape;
    const exists = shape?.length === index.length && index.every((i, axis) => Number.isInteger(i) && i >= 0 && i < shape[axis]);
    if (!exists) return null;
    const layer = name.startsWith("layers.") ? Number(name.split(".")[1]) : null;
    const part = name.split(".").at(-1);
    const [title, lesson, code, how] = (layer === null ? OF_MODEL : OF_LAYER)[part] ?? [];
    if (!how) return null;
    const at = `layers.${layer}.`;
    const into = layer ? `layers.${layer - 1}.output` : "embedding";
    const isClassToken = part === "tokens" && index[0] === 0;
    return {
      name, index, title, code,
      value: value(name, index),
      digits: ["weights", "probabilities"].includes(part) ? 4 : 3,
      place: placeOf(part, layer, index),
      link: `notebooks/${LESSONS[isClassToken ? "classToken" : lesson]}`,
      ...how({ at, into, layer, block: `encoder.layers.${layer}` }, ...index),
    };
  }

  function placeOf(part, layer, index) {
    const words = [];
    if (layer !== null) words.push(`layer ${layer}`);
    if (index.length === 3) words.push(`head ${index[0]}`);
    const [row, column] = index.slice(-2);
    if (["scores", "weights"].includes(part)) return [...words, `from ${tokenName(row)} to ${tokenName(column)}`].join(", ");
    if (["logits", "probabilities"].includes(part)) return `class ${explorer.model.about.class_names[column]}`;
    if (part === "patches") return `patch ${row}, value ${column}`;
    if (part !== "pooled") words.push(tokenName(row));
    return [...words, `feature ${column}`].join(", ");
  }

  // go to the map that shows a number, and explain it
  function follow(name, index) {
    const [, layer] = name.match(/^layers\.(\d+)\./) ?? [];
    const part = name.split(".").at(-1);
    const choices = { cell: `${name}:${index.join(".")}` };
    if (layer) choices.layer = Number(layer);
    if (index.length === 3) choices.head = index[0];
    if (part === "patches") choices.token = index[0] + 1;
    else if (!["pooled", "logits", "probabilities"].includes(part)) choices.token = index.at(-2);
    explorer.set(choices);
    document.querySelector(`[data-part="${part}"] .cells`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  function row({ label, from, a, b, product }, largest) {
    const go = element("button", { type: "button", class: "term", onclick: () => follow(...from) }, label);
    const size = element("span", { class: product < 0 ? "bar less" : "bar", style: `--size: ${Math.abs(product) / largest}` });
    const cells = [a, b, product].map((each) => element("td", {}, number(each)));
    return element("tr", {}, element("th", { scope: "row" }, go), ...cells, element("td", { "aria-hidden": "true" }, size));
  }

  function tableOf({ names, terms, bias, total, products }) {
    const largest = Math.max(...terms.map(({ product }) => Math.abs(product)), 1e-12);
    const heads = [...names, "product", ""].map((name) => (name ? element("th", { scope: "col" }, name) : element("td")));
    const summed = bias === undefined
      ? `Sum of these ${terms.length} products: ${number(total)}`
      : `Sum of these ${terms.length} products: ${number(products)}, plus bias ${number(bias)}: ${number(total)}`;
    return [
      element("p", { class: "sum" }, summed),
      element("table", {}, element("caption", {}, "The largest products come first."),
        element("thead", {}, element("tr", {}, ...heads)),
        element("tbody", {}, ...terms.map((term) => row(term, largest)))),
    ];
  }

  let shown = null;
  function drawWhy() {
    const panel = document.getElementById("why");
    const found = explain(state.cell);
    const key = found && `${state.cell} ${explorer.version}`;
    if (key === shown && panel.childElementCount) return;
    shown = key;
    document.getElementById("why-empty").hidden = Boolean(found);
    panel.replaceChildren();
    if (!found) return;
    const { title, place, lines = [], table, from = [], code, link, digits } = found;
    panel.append(
      element("p", { class: "value" }, element("b", {}, title), element("output", {}, number(found.value, digits))),
      element("p", { class: "place" }, place),
      ...(lines.length ? [element("ol", {}, ...lines.map((line) => element("li", {}, line)))] : []),
      ...(from.length ? [element("p", { class: "from" }, "Go to ", ...from.flatMap(([label, ...to], i) => [
        i ? " or " : "", element("button", { type: "button", class: "term", onclick: () => follow(...to) }, label),
      ]))] : []),
      ...(table ? tableOf(table) : []),
      element("p", { class: "code" }, element("code", {}, code)),
      element("p", {}, element("a", { href: link }, `Section ${link.match(/#([\d.]+)/)[1]} of the course explains it`)),
    );
    openSheet(true);
    explorer.say(`${title}, ${place}: ${number(found.value, digits)}`);
  }

  // on a narrow screen the explanations are a sheet at the lower edge
  function openSheet(open) {
    document.body.classList.toggle("sheet-open", open);
    document.getElementById("sheet").setAttribute("aria-expanded", open);
  }

  Object.assign(explorer, { LESSONS, value, explain, follow, drawWhy, openSheet });
}
