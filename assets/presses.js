// Delays a press of a button until earlier requests are answered: the list of models, a sample, a recording.
// Otherwise, on a slow server, its run would begin with old values, or without a recording.
// Requests that take turns wait for the answer to the one before. Gradio may show answers that come together in another
// order: it delays those whose request it knows, and shows the others as soon as it knows theirs.
window.workbenchPresses = (() => {
  const pendingAnswers = new Map(); // id of a button to the number of answers that it waits for
  const heldButtons = new Set(); // ids of the buttons that were pressed meanwhile
  const turns = new Map(); // name of a turn to the functions that send the requests that wait for it

  // Returns the values of the request, or a promise of them if it waits for its turn; `turn` is null for no turns.
  const ask = (ids, turn, values) => {
    for (const id of ids) pendingAnswers.set(id, (pendingAnswers.get(id) || 0) + 1);
    const waitingRequests = turns.get(turn);
    if (waitingRequests) return new Promise((send) => waitingRequests.push(() => send(values)));
    if (turn) turns.set(turn, []);
    return values;
  };

  const answer = (ids, turn) => {
    const sendNext = turns.get(turn)?.shift();
    if (sendNext) sendNext();
    else turns.delete(turn);
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
