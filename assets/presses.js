// A press of a button waits for what was asked of the server before it: the list of models, a sample, a recording.
// Otherwise its run would begin with the values from before: on a slow server, without any recording.
window.workbenchPresses = (() => {
  const asked = new Map(); // id of a button: how many answers it waits for
  const held = new Set(); // ids of the buttons that were pressed meanwhile

  const ask = (ids, values) => {
    for (const id of ids) asked.set(id, (asked.get(id) || 0) + 1);
    return values;
  };

  const answer = (ids) => {
    for (const id of ids) {
      asked.set(id, asked.get(id) - 1);
      if (asked.get(id) || !held.delete(id)) continue;
      const button = document.getElementById(id);
      button.removeAttribute('aria-busy');
      button.click();
    }
  };

  document.addEventListener('click', (event) => {
    const button = event.target.closest?.('button');
    if (!button || !asked.get(button.id)) return;
    event.stopPropagation();
    held.add(button.id);
    button.setAttribute('aria-busy', 'true');
  }, true); // before the button itself hears it

  return {ask, answer};
})();
