"use strict";
// einops in small: apply a pattern to a tensor, or throw what einops 0.8 says about the mistake.
{
  const ELLIPSIS = "…";
  const fail = (message) => { throw new Error(message); };
  const isLength = (axis) => typeof axis !== "string"; // such as 2 in (h 2)
  const isName = (word) => /^[\p{L}_][\p{L}\p{N}_]*$/u.test(word);
  const quoted = (axis) => (isLength(axis) ? `${axis.length}-axis` : `'${axis}'`);
  const listed = (names) => `{${[...names].map(quoted).sort().join(", ")}}`;
  const without = (names, others) => [...names].filter((name) => !others.has(name));

  // one side of a pattern -> groups of axes: a name, {length} of a number such as 2, or an ellipsis
  function parse(written) {
    if (written.includes(".")) {
      const dots = "Expression may contain dots only inside ellipsis (...)";
      if (!written.includes("...")) fail(dots);
      if (written.split(".").length !== 4) fail(`${dots}; only one ellipsis for tensor `);
    }
    const text = written.replace("...", ELLIPSIS);
    const [groups, names] = [[], new Set()];
    let [group, word] = [null, ""];
    function add(name) {
      if (names.has(name)) fail(`Indexing expression contains duplicate dimension "${name}"`);
      if (/^0*1$/.test(name)) {
        if (!group) groups.push([]);
        return;
      }
      const axis = /^\d+$/.test(name) ? { length: Number(name) } : name;
      if (axis.length === 0) fail("Anonymous axis should have positive length, not 0");
      if (!isLength(axis) && name !== ELLIPSIS) {
        const invalid = `Invalid axis identifier: ${name}\n`;
        if (!isName(name)) fail(`${invalid}not a valid python identifier`);
        if (name.startsWith("_") || name.endsWith("_")) {
          fail(`${invalid}axis name should should not start or end with underscore`);
        }
      }
      names.add(axis);
      if (group) group.push(axis);
      else groups.push(name === ELLIPSIS ? ELLIPSIS : [axis]);
    }
    for (const letter of text) {
      if (!"() ".includes(letter)) {
        if (!/[\p{L}\p{N}_…]/u.test(letter)) fail(`Unknown character '${letter}'`);
        word += letter;
        continue;
      }
      if (word) add(word);
      word = "";
      if (letter === "(") {
        if (group) fail("Axis composition is one-level (brackets inside brackets not allowed)");
        group = [];
      } else if (letter === ")") {
        if (!group) fail("Brackets are not balanced");
        groups.push(group);
        group = null;
      }
    }
    if (group) fail(`Imbalanced parentheses in expression: "${text}"`);
    if (word) add(word);
    return { groups, names };
  }

  function checkNames(left, right, operation, reduction, pattern, sizes) {
    if (!left.names.has(ELLIPSIS) && right.names.has(ELLIPSIS)) {
      fail(`Ellipsis found in right side, but not left side of a pattern ${pattern}`);
    }
    if (left.names.has(ELLIPSIS) && !left.groups.includes(ELLIPSIS)) {
      fail(`Ellipsis inside parenthesis in the left side is not allowed: ${pattern}`);
    }
    const [lost, added] = [without(left.names, right.names), without(right.names, left.names)];
    if (operation === "rearrange") {
      const one = [...lost, ...added]; // those of one side only
      if ([...left.names, ...right.names].some(isLength)) {
        fail("Non-unitary anonymous axes are not supported in rearrange (exception is length 1)");
      }
      if (one.length) {
        fail(`Identifiers only on one side of expression (should be on both): ${listed(one)}`);
      }
    } else if (operation === "repeat") {
      if (lost.length) fail(`Unexpected identifiers on the left side of repeat: ${listed(lost)}`);
      const unknown = added.filter((name) => !isLength(name) && !Object.hasOwn(sizes, name));
      if (unknown.length) fail(`Specify sizes for new axes in repeat: ${listed(unknown)}`);
    } else if (added.length) {
      fail(`Unexpected identifiers on the right side of reduce ${reduction}: ${listed(added)}`);
    }
  }

  // the length of every axis, from the shape of the tensor and the sizes that were typed
  function measure(groups, names, shape, sizes) {
    const lengths = new Map();
    for (const name of [...groups.flat(), ...names]) {
      lengths.set(name, isLength(name) ? name.length : null);
    }
    for (const [name, size] of Object.entries(sizes)) {
      if (!isName(name) || name.startsWith("_") || name.endsWith("_")) {
        fail(`('Invalid name for an axis', '${name}')`);
      }
      if (!lengths.has(name)) fail(`Axis ${name} is not used in transform`);
      lengths.set(name, size);
    }
    const unknownOf = (group) => group.filter((name) => lengths.get(name) === null);
    for (const group of groups) {
      const unknown = unknownOf(group);
      if (unknown.length > 1) fail(`Could not infer sizes for ${listed(unknown)}`);
    }
    groups.forEach((group, axis) => {
      const [unknown] = unknownOf(group);
      const known = group.reduce((product, name) => product * (lengths.get(name) ?? 1), 1);
      const length = shape[axis];
      if (unknown === undefined) {
        if (known !== length) fail(`Shape mismatch, ${length} != ${known}`);
        return;
      }
      if (length % known) {
        fail(`Shape mismatch, can't divide axis of length ${length} in chunks of ${known}`);
      }
      lengths.set(unknown, length / known);
    });
    return lengths;
  }

  const REDUCTIONS = {
    sum: (numbers) => numbers.reduce((a, b) => a + b),
    mean: (numbers) => numbers.reduce((a, b) => a + b) / numbers.length,
    max: (numbers) => numbers.reduce((a, b) => Math.max(a, b)),
    min: (numbers) => numbers.reduce((a, b) => Math.min(a, b)),
  };

  // -> the shape of the result, and a function that applies the pattern to a tensor of `shape`
  function prepare(operation, shape, pattern, sizes, reduction) {
    const [left, right] = pattern.split("->").map(parse);
    checkNames(left, right, operation, reduction, pattern, sizes);
    const others = left.groups.length - 1;
    const many = left.names.has(ELLIPSIS);
    if (many ? shape.length < others : shape.length !== others + 1) {
      const expected = many ? `>=${others}` : others + 1;
      fail(`Wrong shape: expected ${expected} dims. Received ${shape.length}-dim tensor.`);
    }
    const rest = Array.from({ length: shape.length - others }, (_, i) => ELLIPSIS + i);
    const expand = ({ groups }) => groups.flatMap((group) => {
      if (group === ELLIPSIS) return rest.map((name) => [name]);
      return [group.flatMap((name) => (name === ELLIPSIS ? rest : [name]))];
    });
    const [from, to] = [left, right].map(expand);
    const lengths = measure(from, to.flat(), shape, sizes);
    const strides = new Map();
    from.flat().reduceRight((stride, name) => {
      strides.set(name, stride);
      return stride * lengths.get(name);
    }, 1);
    // the places of the tensor that these axes lead to, the last axis varying fastest
    const places = (names) => names.reduce((found, name) => {
      const [length, stride] = [lengths.get(name), strides.get(name) ?? 0];
      const next = new Int32Array(found.length * length);
      found.forEach((place, i) => {
        for (let k = 0; k < length; k++) next[i * length + k] = place + k * stride;
      });
      return next;
    }, Int32Array.of(0));
    const product = (group) => group.reduce((all, name) => all * lengths.get(name), 1);
    const result = to.map(product);
    const reduced = from.flat().filter((name) => !to.flat().includes(name));
    let kept, added; // places of the result's values, and of those that are reduced to one
    function apply(data) {
      kept ??= places(to.flat());
      added ??= places(reduced);
      const values = new Float64Array(kept.length);
      kept.forEach((place, i) => {
        values[i] = added.length === 1 ? data[place]
          : REDUCTIONS[reduction](Float64Array.from(added, (more) => data[place + more]));
      });
      return values;
    }
    return { shape: result, apply };
  }

  figures.prepareEinops = prepare;
}

// What a pattern makes of an image, at every letter that is typed.
figures.kinds.einops = (figure) => {
  const { element, number, paint, clamp } = drawing;
  const { words, image, most_values } = figure.data;
  const { fill, tuple } = figures;
  const [channels, height, width] = image.shape.slice(-3);
  const area = channels * height * width;
  const count = Math.min(image.data.length / area, 16); // images of a batch that are drawn
  const parts = [Math.min(6, height), Math.min(6, width)]; // rows and columns that can be marked

  function sizesOf(written) {
    const sizes = {};
    for (const part of written.split(",").map((word) => word.trim()).filter(Boolean)) {
      const found = part.match(/^([\p{L}\p{N}_]+)\s*=\s*([1-9]\d{0,8})$/u);
      if (!found) throw new Error(fill(words.sizes, { written: part }));
      sizes[found[1]] = Number(found[2]);
    }
    return sizes;
  }

  let last = {}; // what was prepared, so that another mark needs no more than a new picture
  function prepare({ operation, pattern, sizes, reduction }) {
    const key = [operation, pattern, sizes, reduction].join("\n");
    if (last.key === key) return last;
    const lengths = sizesOf(sizes);
    if (pattern.split("->").length !== 2) throw new Error(words.arrow);
    const prepared = figures.prepareEinops(operation, image.shape, pattern, lengths, reduction);
    const size = prepared.shape.reduce((a, b) => a * b, 1);
    if (size > most_values) {
      const [count, most] = [size, most_values].map((each) => each.toLocaleString("en-US"));
      throw new Error(fill(words.large, { shape: tuple(prepared.shape), count, most }));
    }
    last = { ...prepared, key, values: prepared.apply(image.data) };
    return last;
  }

  // how a result is read as a picture, "h w c" for example; null where it cannot be
  function readingOf(shape) {
    if (shape.length === 2) return "h w";
    if (shape.length !== 3) return null;
    if ([1, 3].includes(shape[2])) return "h w c";
    return [1, 3].includes(shape[0]) ? "c h w" : null;
  }

  // the image with the marked part as a negative, which can be told from any surroundings
  function marked(selected) {
    if (!selected) return image.data;
    const [rows, columns] = [height, width].map((side, axis) => {
      return [0, 1].map((more) => Math.floor(((selected[axis] + more) * side) / parts[axis]));
    });
    return image.data.map((value, i) => {
      const [y, x] = [Math.floor(i / width) % height, i % width];
      const inside = y >= rows[0] && y < rows[1] && x >= columns[0] && x < columns[1];
      return inside ? 1 - value : value;
    });
  }

  const operations = ["rearrange", "reduce", "repeat"];
  figure.select("operation", operations, (state) => state.operation, (operation) => {
    figure.save({ operation });
  });
  figure.field("pattern", "pattern");
  figure.field("sizes", "sizes", "p1=16, p2=16");
  const reductions = ["mean", "max", "min", "sum"];
  const reduction = figure.select("reduction", reductions, (state) => state.reduction, (chosen) => {
    figure.save({ reduction: chosen });
  });

  const left = figure.panel("");
  left.caption.textContent = `in: ${tuple(image.shape)}`;
  const sheet = element("div", { class: "vit-sheet" });
  left.host.append(sheet);
  const across = count === 1 ? 1 : count <= 6 ? 2 : 4;
  sheet.style.gridTemplateColumns = `repeat(${across}, minmax(0, 1fr))`;
  const inputs = Array.from({ length: count }, (_, index) => {
    const host = sheet.appendChild(element("div"));
    const made = figure.cells(host, {
      label: "The image. Arrow keys mark a part, which is then marked in the result as well.",
      shape: () => parts,
      words: (...cell) => `part ${tuple(cell)}`,
      pin: (...cell) => figure.save({ selected: cell }),
      escape: () => figure.save({ selected: null }),
      selected: () => figure.state().selected,
      hover: (cell) => figure.preview(cell && { selected: cell }),
    });
    made.box.style.aspectRatio = `${width} / ${height}`;
    return { ...made, start: index * area };
  });
  const right = figure.panel("medium");
  const result = element("canvas", { class: "vit-result", role: "img", "aria-label": "result" });
  right.host.append(result);

  // data in the order "c h w" if `byChannel`, else "h w c"
  function paintImage(canvas, data, [rows, columns, depth], byChannel) {
    const place = (i, c) => (byChannel ? c * rows * columns + i : i * depth + c);
    const shade = (i, c) => 255 * clamp(data[place(i, depth === 1 ? 0 : c)], 0, 1);
    paint(canvas, rows, columns, (i) => drawing.packed(shade(i, 0), shade(i, 1), shade(i, 2)));
  }

  function drawResult({ shape, apply }, reading, data, most) {
    const values = apply(data).map((value) => value / most);
    const sizes = reading === "c h w" ? [shape[1], shape[2], shape[0]] : [...shape, 1].slice(0, 3);
    paintImage(result, values, sizes, reading === "c h w");
    const ratio = sizes[0] / sizes[1];
    result.classList.toggle("stretched", ratio < 1 / 20 || ratio > 20);
  }

  function draw(state) {
    const { operation, pattern, selected } = state;
    reduction.disabled = operation !== "reduce";
    const data = marked(selected);
    for (const { canvas, start, mark } of inputs) {
      paintImage(canvas, data.subarray(start, start + area), [height, width, channels], true);
      mark(selected ? [["pin", ...selected]] : []);
    }
    const call = `${operation}(image, "${pattern}")`;
    result.classList.add("empty");
    right.caption.textContent = "no result";
    try {
      const prepared = prepare(state);
      const { values } = prepared;
      const shape = tuple(prepared.shape);
      right.caption.textContent = `out: ${shape}`;
      const reading = readingOf(prepared.shape);
      if (!reading) return { words: fill(words.shape, { call, shape }), values };
      const most = Math.max(values.reduce((a, b) => Math.max(a, b)), 1);
      const scaled = fill(words.range, { reading, most: number(most, 2) });
      drawResult(prepared, reading, data, most);
      result.classList.remove("empty");
      return {
        words: fill(words.picture, { call, shape, reading: most > 1 ? scaled : reading }), values,
      };
    } catch (error) {
      const message = error.message.split("\n").at(-1).trim();
      return { words: fill(words.stops, { call, message }), values: null };
    }
  }
  const help = "Click a part of the image to find it again in the result; Escape removes the mark.";
  return { help, draw };
};
