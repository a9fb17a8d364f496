// Keeps the keyboard's place while the button of a run that a key began gives way to Cancel and comes back: the row of
// both has the focus meanwhile. Cancel itself does not get it, so that a key held too long does not stop the run.
// After a click or a tap nothing moves: a change of the focus would stop the page on its way to the results.
(() => {
  let row = null; // where a key began a run, until the focus goes elsewhere

  const observer = new MutationObserver(() => {
    const focused = document.activeElement;
    const start = row.querySelector('button.primary');
    if (focused === row && start?.checkVisibility()) {
      start.focus({preventScroll: true});
    } else if (focused === document.body || (row.contains(focused) && !focused.checkVisibility())) {
      row.tabIndex = -1;
      row.focus({preventScroll: true});
    }
  });

  const follow = (next) => {
    if (next === row) return;
    observer.disconnect();
    row = next;
    if (row) observer.observe(row, {attributes: true, childList: true, subtree: true});
  };

  document.addEventListener('keydown', ({key, target}) => {
    if (key === 'Enter' || key === ' ') follow(target.closest?.('.go') || null);
  });
  document.addEventListener('focusin', ({target}) => {
    if (!row?.contains(target)) follow(null);
  });
  document.addEventListener('pointerdown', () => follow(null));
})();
