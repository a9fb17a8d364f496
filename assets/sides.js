// The candidates as buttons: `data-pressed` of the element names the pressed one when `toggle` is triggered.
element.addEventListener('click', (event) => {
  const button = event.target.closest('[data-side]');
  if (!button) return;
  element.dataset.pressed = button.dataset.side;
  trigger('toggle');
});
