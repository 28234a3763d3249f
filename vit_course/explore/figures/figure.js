"use strict";
// A lesson's figure: controls, words and panels. It computes and draws here, in JupyterLab and on
// the website; each kind of figure is a function in `figures.kinds`.
var figures = { kinds: {} };
{
  const { element, theme, onTheme } = drawing;
  const folder = document.currentScript?.src.replace(/[^/]*$/, ""); // on the website

  function half(bits) {
    const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
    const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    return bits >> 15 ? -size : size;
  }

  // what `packed` in figure.py makes of a tensor -> {shape, data}; of bytes, 255 stands for 1
  function unpacked({ shape, type, data }) {
    const { buffer } = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const numbers = {
      uint8: () => Float64Array.from(new Uint8Array(buffer), (byte) => Math.fround(byte / 255)),
      float16: () => Float64Array.from(new Uint16Array(buffer), half),
      float32: () => Float64Array.from(new Float32Array(buffer)),
    };
    return { shape, data: numbers[type]() };
  }

  const fill = (words, facts) => words.replace(/\{(\w+)\}/g, (_, name) => facts[name]);
  const tuple = (numbers) => `(${numbers.join(", ")}${numbers.length === 1 ? "," : ""})`;

  // the brightness of an image (c, h, w) of 1 or 3 channels, for `paint`
  function pixels({ shape: [channels, height, width], data }) {
    const area = height * width;
    const shade = (i, c) => 255 * data[channels === 1 ? i : c * area + i];
    return (i) => drawing.packed(shade(i, 0), shade(i, 1), shade(i, 2));
  }

  const tokenOf = (cell, [, columns]) => (cell ? 1 + cell[0] * columns + cell[1] : 0);

  // adds a check box for the class token, and returns what cells need in which a patch is selected
  function tokenCells(figure, grid) {
    const selected = () => figure.state().selected;
    let patch = selected() ?? grid.map((size) => size >> 1); // to return to from the class token
    const select = (cell) => {
      patch = selected() ?? patch;
      figure.save({ selected: cell });
    };
    figure.check("class token", (state) => !state.selected, (on) => select(on ? null : patch));
    const pin = (...cell) => select(cell);
    return { shape: () => grid, pin, escape: () => select(null), selected };
  }

  // `connection` has `get()`, the state by name; `save(changes)`, after which `draw` is called; and
  // `local`, if no Python computes what the figure cannot
  function make(host, kind, data, connection) {
    const controls = element("div", { class: "vit-controls" });
    const text = element("p", { class: "vit-text" });
    const panels = element("div", { class: "vit-panels" });
    const hint = element("p", { class: "vit-hint" });
    const status = element("p", { class: "vit-unseen", role: "status" });
    const root = element("div", {
      class: `vit vit-figure ${kind}`, role: "group", "aria-label": `Interactive figure: ${kind}`,
    }, controls, text, panels, hint, status);
    const tensors = Object.entries(data).map(([name, part]) => {
      return [name, part?.type ? unpacked(part) : part];
    });
    const followers = []; // controls that show the state
    let preview = null; // what is different while the mouse is over a cell
    const save = (changes) => {
      preview = null;
      connection.save(changes);
    };

    // a control with its name; `show(state)` brings it into step with the state
    function control(label, input, show, ...more) {
      controls.append(element("label", { class: "vit-control" }, label, input, ...more));
      followers.push(show);
      return input;
    }

    const figure = {
      data: Object.fromEntries(tensors),
      local: connection.local,
      folder,
      state: connection.get,
      save,
      draw,
      preview(changes) {
        preview = changes;
        draw();
      },
      say(words) {
        status.textContent = words;
      },
      panel(name, ...parts) {
        const caption = element("figcaption", {});
        panels.append(element("figure", { class: name }, caption, ...parts));
        return { host: caption.parentElement, caption };
      },
      cells(panel, options) {
        const made = drawing.cells(panel, { say: figure.say, ...options });
        made.size();
        return made;
      },
      // a slider; `from` and `to` lead from the slider's number to that of the state, and back
      range(name, label, { min, max, step = 1, from = Number, to = Number, show = String }) {
        const shown = element("span", { class: "vit-readout", "aria-hidden": "true" });
        const input = element("input", {
          type: "range", min, step, oninput: () => save({ [name]: from(Number(input.value)) }),
        });
        control(label, input, (state) => {
          input.max = typeof max === "function" ? max(state) : max;
          input.value = to(state[name]);
          shown.textContent = show(state[name]);
          input.setAttribute("aria-valuetext", shown.textContent);
        }, shown);
      },
      select(label, options, read, write) {
        const input = element("select", { onchange: () => write(input.value) },
          ...options.map((option) => element("option", {}, option)));
        return control(label, input, (state) => { input.value = read(state); });
      },
      check(label, read, write) {
        const input = element("input", { type: "checkbox", onchange: () => write(input.checked) });
        control(label, input, (state) => { input.checked = read(state); });
      },
      field(name, label, placeholder = "") {
        const input = element("input", {
          type: "text", placeholder, spellcheck: "false", autocapitalize: "off",
          oninput: () => save({ [name]: input.value }),
        });
        control(label, input, (state) => {
          if (input.value !== state[name]) input.value = state[name];
        });
      },
      button(label, onclick) {
        const made = element("button", { type: "button", onclick }, label);
        controls.append(made);
        return made;
      },
    };

    const { help, draw: drawKind } = figures.kinds[kind](figure);
    hint.textContent = help;
    for (const part of root.querySelectorAll("input, select, button, [tabindex]")) {
      part.dataset.lmSuppressShortcuts = "true"; // its keys are not for JupyterLab
    }

    function draw() {
      root.style.colorScheme = theme();
      const pinned = connection.get();
      for (const follow of followers) follow(pinned);
      const { words, values, busy } = drawKind({ ...pinned, ...preview });
      text.textContent = words;
      if (preview || busy) return; // only what stays is read out
      if (status.textContent !== words) status.textContent = words;
      root.values = values;
    }
    draw();
    host.append(root);
    return { draw, end: onTheme(draw) };
  }

  // in JupyterLab: the state belongs to a widget, whose other half is in Python
  function render({ model, el }) {
    const names = model.get("choices");
    const connection = {
      get: () => Object.fromEntries(names.map((name) => [name, model.get(name)])),
      save(changes) {
        for (const [name, value] of Object.entries(changes)) model.set(name, value);
        model.save_changes();
      },
    };
    const { draw, end } = make(el, model.get("kind"), model.get("data"), connection);
    model.on("change", draw);
    return () => {
      model.off("change", draw);
      end();
    };
  }

  // on the website: the state is stored next to the still picture, which the figure replaces
  function replaceStill(script) {
    const { kind, data, state } = JSON.parse(script.textContent);
    const host = element("div");
    const connection = {
      local: true,
      get: () => state,
      save(changes) {
        Object.assign(state, changes);
        draw();
      },
    };
    const { draw } = make(host, kind, data, connection);
    script.after(host);
    script.closest(".cell").querySelector(".cell_output").hidden = true;
  }

  if (folder) {
    addEventListener("DOMContentLoaded", () => {
      document.querySelectorAll("script.vit-stored").forEach(replaceStill);
    });
  }
  Object.assign(figures, { render, fill, tuple, pixels, tokenOf, tokenCells });
}
