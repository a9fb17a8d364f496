// Closes error messages as soon as the visitor presses or edits something in a tab.
{
  const closeToasts = (event) => {
    if (!event.target.closest?.('#tabs')) return;
    if (event.type === 'click' && !event.target.closest('button, label, input')) return;
    for (const button of document.querySelectorAll('.toast-close')) button.click();
  };
  for (const name of ['click', 'input', 'change']) document.addEventListener(name, closeToasts, true);
}
