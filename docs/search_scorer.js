// The order of the search's results: sections that have the words in their titles, then the lessons and the glossary.
var Scorer = {
  score: ([page, , , , score, , kind]) =>
    score + (kind === "title" ? 20 : 0) + (/^notebooks\/(\d|appendix)|^glossary/.test(page) ? 10 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 5, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 8,
  partialTitle: 4,
  term: 5,
  partialTerm: 2,
};
