// A message about a mistake goes as soon as the visitor does something about it.
{
  const clear = (event) => {
    if (!event.target.closest?.('#tabs')) return;
    if (event.type === 'click' && !event.target.closest('button, label, input')) return;
    for (const close of document.querySelectorAll('.toast-close')) close.click();
  };
  for (const name of ['click', 'input', 'change']) document.addEventListener(name, clear, true);
}
