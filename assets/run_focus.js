// Keeps the focus near the button of a run that a key has started. The button gives way to Cancel, and the browser would
// move the focus to the top of the page. So the row of both buttons gets the focus until the button is back. Cancel does
// not get it: a key that is held too long would stop the run. After a click or a tap the focus does not move, because
// that would stop the page on its way to the results.
(() => {
  let row = null; // the row in which a key started a run, until the focus leaves it

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
