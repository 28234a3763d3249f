"use strict";
// Maps of the model's tensors: one cell a number.
{
  const { element, number, attentionColors, colorsAround, paint } = drawing;
  const { state } = explorer;

  // cells that speak through the page, and whose Escape key closes the explanation
  const cells = (host, options) => drawing.cells(host, {
    say: explorer.say,
    escape: () => explorer.set({ cell: null }),
    ...options,
  });

  // for each kind of tensor the size that 99.5 % of its numbers in all layers do not exceed
  function limitsOf(record) {
    const kinds = {};
    for (const [name, { data }] of Object.entries(record)) {
      (kinds[name.split(".").at(-1)] ??= []).push(data);
    }
    return Object.fromEntries(Object.entries(kinds).map(([kind, parts]) => {
      const sizes = Float32Array.from(parts.flatMap((data) => [...data].map(Math.abs))).sort();
      return [kind, Number(sizes[Math.ceil(0.995 * (sizes.length - 1))].toPrecision(1)) || 1];
    }));
  }

  // the key token of the score or weight that is explained, if its map is shown; otherwise null
  function keyToken() {
    const at = `layers.${state.layer}.`;
    const [name, where] = (state.cell ?? ":").split(":");
    const [head, , key] = where.split(".").map(Number);
    const isPair = [`${at}scores`, `${at}weights`].includes(name);
    return isPair && head === state.head ? key : null;
  }

  /**
   * The map of a tensor: of the chosen layer if `ofLayer`, and of the chosen head if the tensor has
   * one matrix per head. `rows` and `columns` name its axes, `cell` is a cell's size in pixels.
   */
  function tensorMap(host, options) {
    const { part, title, ofLayer, rows = "token", columns = "feature", cell = 2.6 } = options;
    const name = () => (ofLayer ? `layers.${state.layer}.${part}` : part);
    const tensor = () => explorer.record[name()];
    const shape = () => tensor().shape.slice(-2);
    const perHead = () => tensor().shape.length === 3;
    const index = (row, column) => [...(perHead() ? [state.head] : []), row, column];
    const caption = element("figcaption");
    const figure = element("figure", { class: "tensor", "data-part": part });
    figure.style.setProperty("--cell", `${cell}px`);
    host.append(figure);
    const row = (i) => {
      if (rows === "token") return `${explorer.tokenName(i)}, `;
      return rows === "patch" ? `patch ${i}, ` : "";
    };
    const place = (i, j) => {
      return columns === "key token" ? explorer.pairName(part, i, j) : `${row(i)}${columns} ${j}`;
    };
    const map = cells(figure, {
      label: `${title}. Arrow keys move, Enter explains a number.`,
      shape,
      words: (i, j) => `${place(i, j)}: ${number(explorer.value(name(), index(i, j)))}`,
      pin(i, j) {
        const cell = `${name()}:${index(i, j).join(".")}`;
        explorer.set(rows ? { token: rows === "patch" ? i + 1 : i, cell } : { cell });
        explorer.uncover();
      },
    });
    figure.prepend(caption);
    let sized = null;
    explorer.onDraw(() => {
      const [height, width] = shape();
      const { data } = tensor();
      const start = perHead() ? state.head * height * width : 0;
      const limit = explorer.limits[part];
      const size = ` ${height} × ${width}${part === "weights" ? "" : `, ±${limit}`}`;
      if (size !== sized) { // or all of the page would be laid out again
        sized = size;
        caption.replaceChildren(element("b", {}, title), size);
        map.size();
      }
      const colorOf = part === "weights" ? attentionColors() : colorsAround(limit);
      paint(map.canvas, height, width, (i) => colorOf(data[start + i]));
    }, () => [name(), perHead() && state.head]);
    const marks = () => {
      const [, width] = shape();
      const list = [];
      const key = ["keys", "values"].includes(part) ? keyToken() : null;
      if (key !== null) list.push(["row other", key, 0, 1, width]);
      else if (rows === "token") list.push(["row", state.token, 0, 1, width]);
      if (rows === "patch" && state.token) list.push(["row", state.token - 1, 0, 1, width]);
      const [pinned, where] = (state.cell ?? ":").split(":");
      const at = where.split(".").map(Number);
      const visible = pinned === name() && (at.length === 2 || at[0] === state.head);
      if (visible) list.push(["pin", ...at.slice(-2)]);
      return list;
    };
    explorer.onDraw(() => map.mark(marks()), marks);
  }

  Object.assign(explorer, { cells, tensorMap, limitsOf, keyToken });
}
