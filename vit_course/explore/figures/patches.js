"use strict";
// An image cut into patches, and the vector of one of them.
figures.kinds.patches = (figure) => {
  const { element, number, packed, paint, clamp } = drawing;
  const { words, image, sizes } = figure.data;
  const { fill, tuple } = figures;
  const [channels, height, width] = image.shape;
  const FIRST = 12; // numbers that are written out
  const NAMES = channels === 1 ? ["gray"] : ["red", "green", "blue"];
  const GROUNDS = channels === 1 ? ["#555c68"] : ["#b3261e", "#1b7f4b", "#2f6fb0"];

  const shapeOf = ({ patch_size: p }) => [height / p, width / p];
  // the selected patch; at most the last one, because a larger patch size has fewer
  const cellOf = (state) => {
    return state.selected.map((at, axis) => Math.min(at, shapeOf(state)[axis] - 1));
  };

  // place `index` of the vector -> [channel, row, column] in the patch
  function split(index, { patch_size: p, order }) {
    const area = p * p;
    const [c, pixel] = order === "(c p1 p2)" ? [Math.floor(index / area), index % area]
      : [index % channels, Math.floor(index / channels)];
    return [c, Math.floor(pixel / p), pixel % p];
  }
  function compute(state) {
    const p = state.patch_size;
    const [row, column] = cellOf(state);
    return Float64Array.from({ length: channels * p * p }, (_, index) => {
      const [c, y, x] = split(index, state);
      return image.data[(c * height + row * p + y) * width + column * p + x];
    });
  }

  function summary(state, values) {
    const [[row, column], [rows, columns], p] = [cellOf(state), shapeOf(state), state.patch_size];
    const area = (p * p).toLocaleString("en-US");
    return fill(words.patch, {
      query: tuple([row, column]), number: row * columns + column, last: rows * columns - 1,
      c: channels, p, length: values.length.toLocaleString("en-US"),
      order: fill(words[channels === 1 ? "gray" : state.order], { area }),
    });
  }

  // only sizes that divide the image: the slider moves from one to the next
  figure.range("patch_size", "patch size", {
    min: 0,
    max: sizes.length - 1,
    from: (place) => sizes[place],
    to: (size) => sizes.indexOf(size),
    show: (size) => `${size} px`,
  });
  const orders = ["(c p1 p2)", "(p1 p2 c)"];
  figure.select("order", orders, (state) => state.order, (order) => figure.save({ order }));

  let drawn = figure.state(); // the state that is drawn, which may be a preview
  let vector;
  const left = figure.panel("");
  const picture = figure.cells(left.host, {
    label: "The image. Arrow keys select a patch.",
    shape: () => shapeOf(figure.state()),
    words: (...cell) => `patch ${tuple(cell)}`,
    pin: (...cell) => figure.save({ selected: cell }),
    selected: () => cellOf(figure.state()),
    hover: (cell) => figure.preview(cell && { selected: cell }),
  });
  picture.box.classList.add("image");
  paint(picture.canvas, height, width, figures.pixels(image));

  const place = (c, y, x, { patch_size: p, order }) => {
    return order === "(c p1 p2)" ? (c * p + y) * p + x : (y * p + x) * channels + c;
  };
  const pixelWords = (y, x) => NAMES.map((name, c) => {
    const index = place(c, y, x, drawn);
    return `${name} ${number(vector[index], 2)} (index ${index})`;
  }).join(", ");
  const middle = figure.panel("");
  const patch = figure.cells(middle.host, {
    label: "The pixels of the patch. Arrow keys move from pixel to pixel.",
    shape: () => [drawn.patch_size, drawn.patch_size],
    words: pixelWords,
    pin: (y, x) => figure.say(pixelWords(y, x)),
  });

  const right = figure.panel("");
  right.caption.textContent = channels === 1 ? "its only channel" : "its channels, one by one";
  const planes = NAMES.map((name) => {
    const [canvas, where] = [element("canvas"), element("span")];
    return { name, canvas, where, row: element("div", {}, canvas, where) };
  });
  right.host.append(element("div", { class: "vit-channels" }, ...planes.map(({ row }) => row)));

  const below = figure.panel("wide");
  const indexWords = (_, index) => {
    const [c, y, x] = split(index, drawn);
    return `index ${index}: ${NAMES[c]} ${number(vector[index], 2)} of pixel (${y}, ${x})`;
  };
  const strip = figure.cells(below.host, {
    label: "The vector of the patch. Arrow keys move from value to value.",
    shape: () => [1, vector?.length ?? 1],
    words: indexWords,
    pin: (row, index) => figure.say(indexWords(row, index)),
  });
  const first = element("div", { class: "vit-first" });
  below.host.append(first);

  const shade = (value, c) => {
    const light = 255 * clamp(value, 0, 1);
    return packed(...[0, 1, 2].map((k) => (channels === 1 || k === c ? light : 0)));
  };
  function drawPlanes({ patch_size: p, order }, cut) {
    planes.forEach(({ name, canvas, where }, c) => {
      paint(canvas, p, p, (i) => shade(cut[c * p * p + i], c));
      const [start, step] = order === "(c p1 p2)" ? [c * p * p, 1] : [c, channels];
      const last = start + step * (p * p - 1);
      const between = step === 1 ? " to" : `, ${start + step}, … `;
      where.textContent = `${name}: index ${start}${start === last ? "" : `${between} ${last}`}`;
    });
  }

  function draw(state) {
    drawn = state;
    const p = state.patch_size;
    const [rows, columns] = shapeOf(state);
    vector = compute(state);
    const cut = compute({ ...state, order: orders[0] });
    picture.size();
    picture.mark([["pin", ...cellOf(state)]]);
    left.caption.textContent = `${rows} × ${columns} = ${rows * columns} patches`;
    middle.caption.textContent = `patch ${tuple(cellOf(state))}: ${p} × ${p} pixels`;
    patch.size();
    paint(patch.canvas, p, p, figures.pixels({ shape: [channels, p, p], data: cut }));
    drawPlanes(state, cut);
    const length = vector.length.toLocaleString("en-US");
    below.caption.textContent = `its vector, ${state.order}: ${length} values`;
    strip.size();
    paint(strip.canvas, 1, vector.length, (i) => shade(vector[i], split(i, state)[0]));
    first.replaceChildren(...[...vector.slice(0, FIRST)].map((value, index) => {
      const [c] = split(index, state);
      const name = channels === 1 ? "" : `${NAMES[c][0].toUpperCase()} `;
      return element("span", { style: `background: ${GROUNDS[c]}` }, `${name}${number(value, 2)}`);
    }), vector.length > FIRST ? "…" : "");
    return { words: summary(state, vector), values: vector };
  }
  return { help: "Click a patch, or use Tab and the arrow keys.", draw };
};
