// The candidates as buttons: which one was pressed last stands in `data-pressed` of the element when `toggle` comes.
element.addEventListener('click', (event) => {
  const pressed = event.target.closest('[data-side]');
  if (!pressed) return;
  element.dataset.pressed = pressed.dataset.side;
  trigger('toggle');
});
