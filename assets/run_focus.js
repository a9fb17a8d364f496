// Keeps the keyboard's place while a run's button gives way to Cancel and comes back: the row of both has the focus
// meanwhile. Cancel itself does not get it, so that a key held too long does not stop the run.
(() => {
  let row = null; // where the focus was last, if it was in such a row

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

  document.addEventListener('focusin', (event) => {
    const next = event.target.closest?.('.go') || null;
    if (next === row) return;
    observer.disconnect();
    row = next;
    if (row) observer.observe(row, {attributes: true, childList: true, subtree: true});
  });
})();
