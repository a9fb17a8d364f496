// Delays a press of a button until earlier requests are answered: the list of models, a sample, a recording.
// Otherwise, on a slow server, its run would begin with old values, or without a recording.
window.workbenchPresses = (() => {
  const pendingAnswers = new Map(); // id of a button to the number of answers that it waits for
  const heldButtons = new Set(); // ids of the buttons that were pressed meanwhile

  const ask = (ids, values) => {
    for (const id of ids) pendingAnswers.set(id, (pendingAnswers.get(id) || 0) + 1);
    return values;
  };

  const answer = (ids) => {
    for (const id of ids) {
      pendingAnswers.set(id, pendingAnswers.get(id) - 1);
      if (pendingAnswers.get(id) || !heldButtons.delete(id)) continue;
      const button = document.getElementById(id);
      button.removeAttribute('aria-busy');
      button.click();
    }
  };

  document.addEventListener('click', (event) => {
    const button = event.target.closest?.('button');
    if (!button || !pendingAnswers.get(button.id)) return;
    event.stopPropagation();
    heldButtons.add(button.id);
    button.setAttribute('aria-busy', 'true');
  }, true); // in the capture phase, before the handlers of the button

  return {ask, answer};
})();
