"use strict";
// Maps of numbers: one cell a number, drawn on a canvas, reached by mouse, finger and keys.
{
  const { element, number, state } = explorer;

  // colors from the smallest to the largest value; in the dark, large values are light
  const SCALES = {
    light: {
      attention: ["#ffffff", "#fbd9ae", "#e8912a", "#a04c0c", "#431803"],
      around: ["#16436f", "#4d93c9", "#ffffff", "#e17a62", "#8f1527"],
    },
    dark: {
      attention: ["#1c2029", "#5b3513", "#b8681a", "#f3ac58", "#fff1dc"],
      around: ["#c4e6fb", "#3f83bd", "#1c2029", "#bb4f47", "#ffd0c2"],
    },
  };

  function theme() {
    const chosen = document.documentElement.dataset.theme;
    if (chosen === "light" || chosen === "dark") return chosen;
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  // a color as a canvas keeps it, in one number
  const packed = (r, g, b, a = 255) => ((a << 24) | (b << 16) | (g << 8) | r) >>> 0;
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  const tables = {};
  // 256 colors from one end of a scale to the other, in the colors of the page's theme
  function colors(name) {
    const key = theme() + name;
    tables[key] ??= Uint32Array.from({ length: 256 }, (_, i) => {
      const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
      const stops = SCALES[theme()][name].map(parts);
      const place = (i / 255) * (stops.length - 1);
      const low = Math.min(Math.floor(place), stops.length - 2);
      const between = (value, c) => value + (place - low) * (stops[low + 1][c] - value);
      return packed(...stops[low].map(between));
    });
    return tables[key];
  }

  // attention weights have one scale in the whole page: from 0 to 1, as square roots, so that 0.02
  // can be seen
  function attentionColors() {
    const table = colors("attention");
    return (weight) => table[Math.round(255 * Math.sqrt(weight))];
  }

  function colorsAround(limit) {
    const table = colors("around");
    return (value) => table[Math.round(127.5 * (1 + clamp(value / limit, -1, 1)))];
  }

  function paint(canvas, rows, columns, colorOf) {
    if (canvas.width !== columns) canvas.width = columns;
    if (canvas.height !== rows) canvas.height = rows;
    const image = new ImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < pixels.length; i++) pixels[i] = colorOf(i);
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  const tip = element("div", { class: "tip", "aria-hidden": "true", hidden: true });
  document.addEventListener("DOMContentLoaded", () => document.body.append(tip));

  const STEPS = {
    ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
    Home: [0, -Infinity], End: [0, Infinity], PageUp: [-Infinity, 0], PageDown: [Infinity, 0],
  };

  /**
   * Cells that can be pointed to. `shape()` gives rows and columns, `words(row, column)` what a
   * cell is, and `pin` is what a click does; `drag` is called instead while the visitor draws.
   */
  function cells(host, { label, shape, words, pin, drag }) {
    const canvas = element("canvas");
    const marks = element("div", { class: "marks" });
    const cursor = element("div", { class: "mark cursor", hidden: true });
    const box = element("div", {
      class: "cells", tabindex: 0, role: "application",
      "aria-roledescription": "map of numbers", "aria-label": label,
    }, canvas, marks, cursor);
    host.append(box);
    let at = null;

    function place(mark, row, column, height = 1, width = 1) {
      const [rows, columns] = shape();
      const share = (part, whole) => `${(100 * part) / whole}%`;
      Object.assign(mark.style, {
        left: share(column, columns),
        top: share(row, rows),
        width: share(width, columns),
        height: share(height, rows),
      });
      return mark;
    }

    function point(cell, event) {
      at = cell;
      cursor.hidden = !cell;
      tip.hidden = !cell || !event || drawing();
      if (!cell) return;
      place(cursor, ...cell);
      if (!event) {
        explorer.say(words(...cell));
        return;
      }
      tip.textContent = words(...cell);
      const wide = document.documentElement.clientWidth;
      const left = clamp(event.clientX + 14, 4, wide - tip.offsetWidth - 4);
      const top = Math.max(event.clientY - tip.offsetHeight - 12, 4);
      tip.style.transform = `translate(${left}px, ${top}px)`;
    }

    function cellOf(event) {
      const area = box.getBoundingClientRect();
      const [rows, columns] = shape();
      const row = Math.floor(((event.clientY - area.top) / area.height) * rows);
      const column = Math.floor(((event.clientX - area.left) / area.width) * columns);
      return [clamp(row, 0, rows - 1), clamp(column, 0, columns - 1)];
    }

    const drawing = () => drag && state.tool === "draw";
    box.addEventListener("pointermove", (event) => {
      if (event.pointerType === "mouse" || drawing()) point(cellOf(event), event);
      if (!drawing() || !event.buttons) return;
      for (const each of event.getCoalescedEvents?.() ?? [event]) drag(each, box);
    });
    box.addEventListener("pointerdown", (event) => {
      if (!drawing()) return;
      box.setPointerCapture(event.pointerId);
      drag(event, box);
    });
    box.addEventListener("pointerleave", () => point(null));
    box.addEventListener("click", (event) => drawing() || pin(...cellOf(event)));
    box.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      const [rows, columns] = shape();
      if (step && !event.ctrlKey && !event.metaKey && !event.altKey) {
        const [row, column] = at ?? [0, 0];
        point([clamp(row + step[0], 0, rows - 1), clamp(column + step[1], 0, columns - 1)]);
      } else if ((event.key === "Enter" || event.key === " ") && at) pin(...at);
      else if (event.key === "Escape") explorer.set({ cell: null });
      else return;
      event.preventDefault();
    });
    box.addEventListener("focus", () => {
      if (!at && box.matches(":focus-visible")) point([0, 0]);
    });
    box.addEventListener("blur", () => point(null));
    return {
      canvas,
      size() {
        const [rows, columns] = shape();
        host.style.setProperty("--rows", rows);
        host.style.setProperty("--columns", columns);
      },
      mark(list) {
        marks.replaceChildren(...list.map(([kind, ...where]) => {
          return place(element("div", { class: `mark ${kind}` }), ...where);
        }));
      },
    };
  }

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
    const column = (j) => {
      return columns === "key token" ? `to ${explorer.tokenName(j)}` : `${columns} ${j}`;
    };
    const map = cells(figure, {
      label: `${title}. Arrow keys move, Enter explains a number.`,
      shape,
      words: (i, j) => `${row(i)}${column(j)}: ${number(explorer.value(name(), index(i, j)))}`,
      pin(i, j) {
        const cell = `${name()}:${index(i, j).join(".")}`;
        explorer.set(rows ? { token: rows === "patch" ? i + 1 : i, cell } : { cell });
      },
    });
    figure.prepend(caption);
    let painted = null;
    function repaint(height, width) {
      const now = [explorer.version, state.layer, state.head, theme()].join();
      if (now === painted) return;
      painted = now;
      const { data } = tensor();
      const start = perHead() ? state.head * height * width : 0;
      const limit = explorer.limits[part];
      caption.replaceChildren(
        element("b", {}, title),
        ` ${height} × ${width}${part === "weights" ? "" : `, ±${limit}`}`,
      );
      map.size();
      const colorOf = part === "weights" ? attentionColors() : colorsAround(limit);
      paint(map.canvas, height, width, (i) => colorOf(data[start + i]));
    }
    explorer.onDraw(() => {
      const [height, width] = shape();
      repaint(height, width);
      const marks = [];
      if (rows === "token") marks.push(["row", state.token, 0, 1, width]);
      if (rows === "patch" && state.token) marks.push(["row", state.token - 1, 0, 1, width]);
      const [pinned, where] = (state.cell ?? ":").split(":");
      const place = where.split(".").map(Number);
      const visible = pinned === name() && (place.length === 2 || place[0] === state.head);
      if (visible) marks.push(["pin", ...place.slice(-2)]);
      map.mark(marks);
    });
  }

  Object.assign(explorer, { cells, tensorMap, paint, packed, limitsOf, attentionColors, theme });
}
