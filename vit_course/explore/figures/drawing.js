"use strict";
// Drawing for the explorer's page and the lessons' figures: elements, colors, and maps of cells
// that mouse, finger and keys reach. These are classic scripts, because a page from the disk loads
// no modules; Jupyter loads a few of them joined to one module, in which `var` is not global.
var drawing = {};
{
  // an element with attributes, listeners (names that begin with "on"), and children
  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== false) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children);
    return made;
  }

  function number(value, digits = 3) {
    return value.toFixed(digits).replace("-", "−").replace(/^−(0(\.0*)?)$/, "$1");
  }

  const percent = (share, digits = 0) => `${number(100 * share, digits)}%`;

  // colors from the smallest to the largest value; in the dark, large values are light
  const SCALES = {
    light: {
      attention: ["#ffffff", "#fbd9ae", "#e8912a", "#a04c0c", "#431803"],
      around: ["#16436f", "#4d93c9", "#ffffff", "#e17a62", "#8f1527"],
    },
    dark: {
      attention: ["#272d39", "#7a481b", "#b8681a", "#f3ac58", "#fff1dc"],
      around: ["#c4e6fb", "#3f83bd", "#1c2029", "#bb4f47", "#ffd0c2"],
    },
  };

  const darkSystem = matchMedia("(prefers-color-scheme: dark)");
  // of the explorer and the website; of JupyterLab and Notebook; or of the system
  function theme() {
    const { theme: chosen } = document.documentElement.dataset;
    if (chosen === "light" || chosen === "dark") return chosen;
    const { jpThemeLight } = document.body.dataset;
    if (jpThemeLight) return jpThemeLight === "false" ? "dark" : "light";
    return darkSystem.matches ? "dark" : "light";
  }

  // call again whenever the theme changes; the function that is returned ends this
  function onTheme(listener) {
    const themes = new MutationObserver(listener);
    const attributeFilter = ["data-theme", "data-jp-theme-light"];
    for (const part of [document.documentElement, document.body]) {
      themes.observe(part, { attributeFilter });
    }
    darkSystem.addEventListener("change", listener);
    return () => {
      themes.disconnect();
      darkSystem.removeEventListener("change", listener);
    };
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

  // attention weights have one scale everywhere: from 0 to 1, as square roots, so that 0.02 can be
  // seen
  function attentionColors() {
    const table = colors("attention");
    return (weight) => table[Math.round(255 * Math.sqrt(clamp(weight, 0, 1)))];
  }

  // the weights of one query token, laid over an image
  const attentionOverlay = (weight) => packed(255, 150, 30, 245 * Math.sqrt(weight));

  function colorsAround(limit) {
    const table = colors("around");
    return (value) => table[Math.round(127.5 * (1 + clamp(value / limit, -1, 1)))];
  }

  const images = new WeakMap(); // of the canvases, used again
  function paint(canvas, rows, columns, colorOf) {
    let image = images.get(canvas);
    if (image?.width !== columns || image.height !== rows) {
      Object.assign(canvas, { width: columns, height: rows });
      image = new ImageData(columns, rows);
      images.set(canvas, image);
    }
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < pixels.length; i++) pixels[i] = colorOf(i);
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  // the words next to the mouse; null hides them
  function tip(words, event) {
    let box = document.querySelector(".vit-tip");
    if (!box) {
      box = element("div", { class: "vit vit-tip", "aria-hidden": "true" });
      document.body.append(box);
    }
    box.hidden = words === null;
    if (box.hidden) return;
    box.style.colorScheme = theme();
    box.textContent = words;
    const wide = document.documentElement.clientWidth;
    const left = clamp(event.clientX + 14, 4, wide - box.offsetWidth - 4);
    const top = Math.max(event.clientY - box.offsetHeight - 12, 4);
    box.style.transform = `translate(${left}px, ${top}px)`;
  }

  const STEPS = {
    ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
    Home: [0, -Infinity], End: [0, Infinity], PageUp: [-Infinity, 0], PageDown: [Infinity, 0],
  };

  /**
   * Cells that can be pointed to. `shape()` gives rows and columns, `words(row, column)` what a
   * cell is, `say` reads words out, `pin` is what a click and Enter do, `escape` the Escape key.
   * `hover` hears of the cell under the mouse. With `selected()`, the arrow keys pin, from that
   * cell on; otherwise they move a cursor. While `drawing()`, the mouse calls `drag` instead.
   */
  function cells(host, options) {
    const { label, shape, words, say, pin, escape, hover, selected, drag } = options;
    const drawing = options.drawing ?? (() => false);
    const canvas = element("canvas");
    const marks = element("div", { class: "vit-marks" });
    const cursor = element("div", { class: "vit-mark cursor", hidden: true });
    const box = element("div", {
      class: "vit-cells", tabindex: 0, role: "application",
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
      const moved = String(cell) !== String(at);
      at = cell;
      cursor.hidden = !cell;
      if (moved) hover?.(cell);
      if (cell) place(cursor, ...cell);
      tip(cell && event && !drawing() ? words(...cell) : null, event);
      if (cell && !event) say(words(...cell));
    }

    function cellOf(event) {
      const area = box.getBoundingClientRect();
      const [rows, columns] = shape();
      const row = Math.floor(((event.clientY - area.top) / area.height) * rows);
      const column = Math.floor(((event.clientX - area.left) / area.width) * columns);
      return [clamp(row, 0, rows - 1), clamp(column, 0, columns - 1)];
    }

    function moved([down, right]) {
      const [rows, columns] = shape();
      const middle = [rows, columns].map((size) => Math.floor(size / 2));
      const [row, column] = selected ? selected() ?? middle : at ?? [0, 0];
      if (selected && !selected()) return middle;
      return [clamp(row + down, 0, rows - 1), clamp(column + right, 0, columns - 1)];
    }

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
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const step = STEPS[event.key];
      const current = selected ? selected() : at;
      if (step && selected) pin(...moved(step));
      else if (step) point(moved(step));
      else if ((event.key === "Enter" || event.key === " ") && current) pin(...current);
      else if (event.key === "Escape") escape?.();
      else return;
      event.preventDefault();
    });
    box.addEventListener("focus", () => {
      if (!at && !selected && box.matches(":focus-visible")) point([0, 0]);
    });
    box.addEventListener("blur", () => point(null));
    return {
      box,
      canvas,
      size() {
        const [rows, columns] = shape();
        host.style.setProperty("--rows", rows);
        host.style.setProperty("--columns", columns);
      },
      mark(list) {
        marks.replaceChildren(...list.map(([kind, ...where]) => {
          return place(element("div", { class: `vit-mark ${kind}` }), ...where);
        }));
      },
    };
  }

  Object.assign(drawing, { element, number, percent, theme, onTheme, packed, clamp });
  Object.assign(drawing, { attentionColors, attentionOverlay, colorsAround, paint, cells });
}
