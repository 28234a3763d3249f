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

function element(name, className, attributes = {}) {
  const made = document.createElement(name);
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

function render({ model, el }) {
  const frame = element("div", "vit-picture");
  if (model.get("places").length) {
    frame.setAttribute("tabindex", "0");
    frame.setAttribute("role", "application");
    frame.setAttribute("aria-roledescription", "picture with cells");
  }
  frame.setAttribute("data-lm-suppress-shortcuts", "true"); // or JupyterLab takes the arrow keys for its own
  const image = element("img", "vit-picture-image", { draggable: "false" });
  const says = element("div", "vit-picture-says", { role: "status", "aria-live": "polite" });
  const cursors = element("div", "vit-picture-cursors");
  frame.append(image, cursors, says);
  el.append(frame);

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
    image.alt = model.get("text");
    says.textContent = model.get("text");
  }

  function showCursor() {
    const selected = model.get("selected");
    const [rows, columns] = model.get("shape");
    cursors.replaceChildren();
    if (!selected) return;
    for (const [left, top, width, height] of model.get("places")) {
      const cursor = element("div", "vit-picture-cursor");
      cursor.style.left = percent(left + (width * selected[1]) / columns);
      cursor.style.top = percent(top + (height * selected[0]) / rows);
      cursor.style.width = percent(width / columns);
      cursor.style.height = percent(height / rows);
      cursors.append(cursor);
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
    const selected = model.get("selected");
    const moved = !selected || selected[0] !== cell[0] || selected[1] !== cell[1];
    if (moved) model.set("selected", cell);
    if (press && model.get("toggles")) {
      const others = model.get("pressed").filter(([row, column]) => row !== cell[0] || column !== cell[1]);
      model.set("pressed", others.length < model.get("pressed").length ? others : [...others, cell]);
    } else if (!moved) return;
    model.save_changes();
    showCursor();
  }

  let began = null; // the cell on which a press began; a click that ends on another one was a drag
  function onPoint(event) {
    const cell = cellAt(event);
    frame.style.cursor = cell ? "pointer" : "default";
    if (event.type === "pointerdown") began = cell;
    const dragged = event.type === "pointermove" && event.pointerType === "mouse" && event.buttons & 1;
    if (!cell || (event.type !== "click" && !dragged)) return;
    choose(cell, event.type === "click" && String(cell) === String(began));
  }

  function onKey(event) {
    const [rows, columns] = model.get("shape");
    const selected = model.get("selected");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in STEPS) {
      const [down, right] = STEPS[event.key];
      const from = selected ?? [Math.floor(rows / 2), Math.floor(columns / 2)];
      choose(selected ? [clamp(from[0] + down, rows), clamp(from[1] + right, columns)] : from, false);
    } else if ((event.key === "Enter" || event.key === " ") && selected && model.get("toggles")) {
      choose(selected, true);
    } else if (event.key === "Escape" && selected && model.get("optional")) {
      model.set("selected", null);
      model.save_changes();
      showCursor();
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
  showPicture();
  showWords();
  showCursor();

  return () => {
    for (const [name, listener] of Object.entries(watched)) model.off(`change:${name}`, listener);
    URL.revokeObjectURL(url);
  };
}

export default { render };
