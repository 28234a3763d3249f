document.addEventListener("DOMContentLoaded", () => {
  // What unfolds a part of the sidebar has no words of its own, which screen readers need.
  for (const unfold of document.querySelectorAll(".bd-sidebar-primary summary")) unfold.ariaLabel = "Pages of this part";
  // On a phone a menu closes when one has chosen from it.
  for (const menu of document.querySelectorAll("dialog[id$='sidebar-modal']"))
    menu.addEventListener("click", (event) => event.target.closest("a") && menu.close());
});

// Paper is light, and what is folded on the screen is open on it.
let onScreen = null;
addEventListener("beforeprint", () => {
  const folded = [...document.querySelectorAll("article details:not([open])")];
  onScreen = { theme: document.documentElement.dataset.theme, folded };
  document.documentElement.dataset.theme = "light";
  for (const details of folded) details.open = true;
});
addEventListener("afterprint", () => {
  document.documentElement.dataset.theme = onScreen.theme;
  for (const details of onScreen.folded) details.open = false;
});
