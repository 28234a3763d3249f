"use strict";
// Put the page together.
{
  const { state } = explorer;
  const byId = (id) => document.getElementById(id);
  const arrived = location.hash;

  explorer.model = vit.readModel(vit.fromPlanes(vit.shipped.model));
  explorer.images = vit.decoded(vit.shipped.images);
  explorer.labelNames = explorer.model.about.class_names;
  explorer.show(0);
  explorer.unchanged = vit.forward(explorer.model, explorer.picture);
  explorer.makeImages(vit.shipped.answers);
  explorer.fitModel();
  explorer.makeViews();
  explorer.makeTour();
  byId("model").textContent = explorer.describe("Fashion-MNIST, patch 4");
  explorer.set(explorer.read(arrived));
  if (!arrived && !remembered()) explorer.goToStep(1);
  else if (state.step) explorer.scrollToPlace();
  // shown when its font is there, because lines in another font wrap elsewhere, and the page would jump
  Promise.race([
    document.fonts.load('1em "Source Sans 3"'), new Promise((done) => { setTimeout(done, 500); }),
  ]).finally(() => {
    document.body.classList.remove("loading");
  });

  function remembered() {
    try { return localStorage.getItem("explorer-tour"); } catch { return null; }
  }

  addEventListener("popstate", () => {
    if (byId(location.hash.slice(1))) return; // a link to a place on the page
    explorer.set(explorer.read(location.hash));
  });
  drawing.onTheme(explorer.draw);

  byId("theme").addEventListener("click", () => {
    const theme = drawing.theme() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("mode", theme);
      localStorage.setItem("theme", theme);
    } catch { /* nothing can be stored */ }
  });
  byId("class-token").addEventListener("click", () => explorer.set({ token: 0 }));
  byId("play").addEventListener("click", explorer.play);
  byId("reset").addEventListener("click", () => explorer.set(explorer.UNCHANGED));
  byId("shuffle").addEventListener("click", () => {
    explorer.set({ shuffle: state.shuffle ? 0 : 1 + Math.floor(Math.random() * 9999) });
  });
  byId("positions").addEventListener("change", ({ target }) => {
    explorer.set({ positions: target.checked });
  });
  byId("strongest").addEventListener("click", explorer.leaveOutStrongest);
  byId("clear").addEventListener("click", explorer.clear);
  byId("file").addEventListener("change", ({ target }) => {
    explorer.open(target.files[0]);
    target.value = "";
  });
  for (const input of document.querySelectorAll("input[name=tool]")) {
    input.addEventListener("change", () => {
      state.tool = input.value;
      byId("picture").dataset.tool = input.value;
      explorer.set(input.value === "draw" ? { shuffle: 0, overlay: "none" } : {});
    });
  }
  for (const input of document.querySelectorAll("input[name=overlay]")) {
    input.addEventListener("change", () => explorer.set({ overlay: input.value }));
  }
  for (const kind of ["dragover", "drop"]) {
    addEventListener(kind, (event) => {
      event.preventDefault();
      if (kind === "drop") explorer.open(event.dataTransfer.files[0]);
    });
  }
  byId("sheet").addEventListener("click", () => {
    explorer.openSheet(!document.body.classList.contains("sheet-open"));
  });
}
