// What unfolds a part of the sidebar has no words of its own, which screen readers need.
document.addEventListener("DOMContentLoaded", () => {
  for (const unfold of document.querySelectorAll(".bd-sidebar-primary summary")) unfold.ariaLabel = "Pages of this part";
});
