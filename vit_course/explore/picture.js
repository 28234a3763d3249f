// A picture whose cells can be clicked, or reached by keys. Python draws the picture; the cursor is drawn here, at once.

const STEPS = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  Home: [0, -Infinity],
  End: [0, Infinity],
  PageUp: [-Infinity, 0],
  PageDown: [Infinity, 0],
};

function append(parent, name, className, attributes = {}) {
  const made = parent.appendChild(document.createElement(name));
  made.className = className;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// A slider of ipywidgets has its description beside it, where a screen reader does not look.
function nameSliders(frame) {
  const sliders = frame.closest(".vit-explorer")?.querySelectorAll(".widget-inline-hbox:has([role=slider])") ?? [];
  for (const slider of sliders) {
    const words = slider.querySelector(".widget-label").textContent;
    slider.querySelector("[role=slider]").setAttribute("aria-label", words);
  }
}

const clamp = (value, size) => Math.min(Math.max(value, 0), size - 1);
const percent = (fraction) => `${100 * fraction}%`;
const same = (cell, other) => String(cell) === String(other);

function render({ model, el }) {
  // without the attribute JupyterLab takes the arrow keys for its own
  const frame = append(el, "div", "vit-picture", { "data-lm-suppress-shortcuts": "true" });
  const image = append(frame, "img", "vit-picture-image", { draggable: "false" });
  const cursors = append(frame, "div", "vit-picture-cursors");
  const says = append(frame, "div", "vit-picture-says", { role: "status", "aria-live": "polite" });
  if (model.get("places").length) {
    const attributes = { tabindex: 0, role: "application", "aria-roledescription": "picture with cells" };
    for (const [key, value] of Object.entries(attributes)) frame.setAttribute(key, value);
  }

  let url = null;
  function showPicture() {
    const old = url;
    url = URL.createObjectURL(new Blob([model.get("png")], { type: "image/png" }));
    image.src = url;
    // the old picture stays on the screen until the new one is ready
    image.decode().catch(() => null).finally(() => old && URL.revokeObjectURL(old));
  }

  function showWords() {
    if (model.get("places").length) frame.setAttribute("aria-label", model.get("label"));
    image.alt = says.textContent = model.get("text");
  }

  function showCursor() {
    const selected = model.get("selected");
    const [rows, columns] = model.get("shape");
    cursors.replaceChildren();
    for (const [left, top, width, height] of selected ? model.get("places") : []) {
      Object.assign(append(cursors, "div", "vit-picture-cursor").style, {
        left: percent(left + (width * selected[1]) / columns),
        top: percent(top + (height * selected[0]) / rows),
        width: percent(width / columns),
        height: percent(height / rows),
      });
    }
  }

  function cellAt(event) {
    const box = image.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width;
    const y = (event.clientY - box.top) / box.height;
    const [rows, columns] = model.get("shape");
    for (const [left, top, width, height] of model.get("places")) {
      const row = Math.floor(((y - top) / height) * rows);
      const column = Math.floor(((x - left) / width) * columns);
      if (row >= 0 && row < rows && column >= 0 && column < columns) return [row, column];
    }
    return null;
  }

  function choose(cell, press) {
    const pressed = model.get("pressed");
    const toggle = press && model.get("toggles");
    if (same(cell, model.get("selected")) && !toggle) return;
    model.set("selected", cell);
    if (toggle) {
      const others = pressed.filter((other) => !same(other, cell));
      model.set("pressed", others.length < pressed.length ? others : [...others, cell]);
    }
    model.save_changes();
    showCursor();
  }

  let began = null; // the cell on which a press began; a click that ends on another one was a drag
  function onPoint(event) {
    const cell = cellAt(event);
    frame.style.cursor = cell ? "pointer" : "default";
    if (event.type === "pointerdown") began = cell;
    const dragged = event.type === "pointermove" && event.pointerType === "mouse" && event.buttons & 1;
    if (cell && (event.type === "click" || dragged)) choose(cell, event.type === "click" && same(cell, began));
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [rows, columns] = model.get("shape");
    const selected = model.get("selected");
    const [down, right] = STEPS[event.key] ?? [];
    if (down !== undefined && selected) {
      choose([clamp(selected[0] + down, rows), clamp(selected[1] + right, columns)], false);
    } else if (down !== undefined) {
      choose([Math.floor(rows / 2), Math.floor(columns / 2)], false);
    } else if ((event.key === "Enter" || event.key === " ") && selected && model.get("toggles")) {
      choose(selected, true);
    } else if (event.key === "Escape" && selected && model.get("optional")) {
      choose(null, false);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  const watched = { png: showPicture, text: showWords, label: showWords };
  Object.assign(watched, { selected: showCursor, shape: showCursor, places: showCursor });
  for (const [name, listener] of Object.entries(watched)) model.on(`change:${name}`, listener);
  image.addEventListener("load", () => nameSliders(frame));
  for (const kind of ["pointerdown", "pointermove", "click"]) frame.addEventListener(kind, onPoint);
  frame.addEventListener("keydown", onKey);
  for (const show of new Set(Object.values(watched))) show();

  return () => {
    for (const [name, listener] of Object.entries(watched)) model.off(`change:${name}`, listener);
    URL.revokeObjectURL(url);
  };
}

export default { render };
