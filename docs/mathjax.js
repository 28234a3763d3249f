// Formulas: MathJax and its fonts lie in _static/mathjax; nothing is loaded from elsewhere.
window.MathJax = {
  loader: { load: ["core", "input/tex", "output/chtml", "a11y/assistive-mml"] },
  output: { font: "mathjax-tex", fontPath: "[mathjax]/font", displayOverflow: "scroll", scale: 0.95 },
  options: { processHtmlClass: "tex2jax_process|mathjax_process|math|output_area" },
  startup: {
    ready() {
      delete MathJax.config.options.menuOptions; // written by the part for screen readers, for a menu that is not here
      MathJax.startup.defaultReady();
    },
    async pageReady() {
      await MathJax.startup.defaultPageReady();
      // a formula wider than the page scrolls in its box, by keyboard, too
      const watch = new ResizeObserver((boxes) => {
        for (const { target } of boxes) target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
      });
      for (const box of document.querySelectorAll("mjx-container[display=true]")) watch.observe(box);
    },
  },
};
