// Sphinx's search: guides and references first, decisions and the log of experiments last.
var Scorer = {
  score: ([page, title, anchor, description, score]) =>
    /^(decisions\/|log$|status$)/.test(page) ? score / 10 : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
